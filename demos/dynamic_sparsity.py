"""Train a small network on scikit-learn's digits at 90 % sparsity with four methods.

The methods are dense, a fixed random topology (static), SET (connections grow at random) and RigL
(connections grow where the gradient is largest). All use the same seeds and steps.

    python demos/dynamic_sparsity.py
    python demos/dynamic_sparsity.py --sparsity 0.95 --structure block --seeds 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from sparse_core.common.commands import failure, reported_file_errors
from sparse_core.common.files import replacing
from sparse_core.dynamic import RigLLinear, RigLScheduler, sparse_training

METHODS = ("dense", "static", "set", "rigl")
LABELS = {"dense": "dense", "static": "static random", "set": "SET", "rigl": "RigL"}
COLOURS = {"dense": "#8a949e", "static": "#e69f00", "set": "#56b4e9", "rigl": "#0072b2"}
BATCH, EVALUATE_EVERY, SNAPSHOTS = 128, 20, 4


@dataclass(frozen=True)
class Digits:
    """Images (N, 64) in [0, 1] and labels; a quarter is held out for testing."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass
class Run:
    """One training.

    Attributes:
        accuracy: held-out accuracy by step.
        masks: (8, 8) number of connections per pixel, by step.
        connections: stored weights; all of them for the dense network.
        seconds: training time without evaluation.
    """

    accuracy: dict[int, float] = field(default_factory=dict)
    masks: dict[int, Tensor] = field(default_factory=dict)
    connections: int = 0
    seconds: float = 0.0

    @property
    def final(self) -> float:
        """Accuracy after the last step."""
        return self.accuracy[max(self.accuracy)]


def load_digits(seed: int = 0) -> Digits:
    """Return the 1,797 images of 8x8 pixels from scikit-learn, shuffled."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise ValueError("the digits need scikit-learn; run pip install scikit-learn") from None
    data = load()
    order = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(seed))
    images = (torch.tensor(data.data, dtype=torch.float32) / 16)[order]
    labels, cut = torch.tensor(data.target)[order], len(images) * 3 // 4
    return Digits(images[:cut], labels[:cut], images[cut:], labels[cut:])


def network(width: int) -> nn.Sequential:
    """Return a network of three Linear layers."""
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def train(method: str, seed: int, digits: Digits, options: argparse.Namespace, bar: Any) -> Run:
    """Train one network from scratch; ``bar`` is called after every step."""
    torch.manual_seed(seed)
    model, run = network(options.width), Run()
    if method != "dense":
        blocks = {"structure": options.structure, "block_size": 8}
        sparse_training(
            model, options.sparsity, seed=100 * seed, execution=options.execution, select="^[02]$", **blocks
        )
    run.connections = sum(p.numel() for name, p in model.named_parameters() if not name.endswith("bias"))
    optimiser = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    scheduler = None
    if method in ("set", "rigl"):
        scheduler = RigLScheduler(
            model,
            optimiser,
            method=method,
            update_every=options.update_every,
            drop_fraction=options.drop_fraction,
            stop_step=options.steps * 3 // 4,
            seed=seed,
        )
    generator = torch.Generator().manual_seed(seed)
    snapshots = {round(at * options.steps / (SNAPSHOTS - 1)) for at in range(SNAPSHOTS)}
    record(model, digits, run, 0, snapshots)
    for step in range(1, options.steps + 1):
        begin = time.perf_counter()
        rows = torch.randint(len(digits.images), (BATCH,), generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(digits.images[rows]), digits.labels[rows]).backward()
        if scheduler is None:
            optimiser.step()
        else:
            scheduler.step()
        run.seconds += time.perf_counter() - begin
        record(model, digits, run, step, snapshots, last=step == options.steps)
        bar()
    return run


@torch.no_grad()
def record(
    model: nn.Sequential, digits: Digits, run: Run, step: int, snapshots: set[int], last: bool = False
) -> None:
    """Record the accuracy at intervals, and the first layer's connections at snapshots."""
    if step % EVALUATE_EVERY == 0 or last:
        right = model(digits.test_images).argmax(1) == digits.test_labels
        run.accuracy[step] = float(right.float().mean())
    if step in snapshots and isinstance(model[0], RigLLinear):
        run.masks[step] = model[0].mask.sum(dim=0).reshape(8, 8)


def draw(runs: dict[str, list[Run]], digits: Digits, options: argparse.Namespace) -> None:
    """Plot accuracy over steps, and the first layer's connections by pixel."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    axes = above.subplots()
    for method, found in runs.items():
        steps = list(found[0].accuracy)
        curves = torch.tensor([[run.accuracy[step] for step in steps] for run in found]) * 100
        axes.plot(steps, curves.median(0).values, color=COLOURS[method], label=LABELS[method], linewidth=2)
        axes.fill_between(
            steps, curves.amin(0), curves.amax(0), color=COLOURS[method], alpha=0.15, linewidth=0
        )
    axes.set(xlabel="step", ylabel="held-out accuracy (%)", ylim=(max(0.0, _floor(runs) - 4), 100))
    axes.set_title(
        f"Digits at {options.sparsity:.0%} sparsity ({options.structure}): median and range of"
        f" {options.seeds} seeds"
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    shown = [method for method in ("set", "rigl") if method in runs]
    columns = len(runs[shown[0]][0].masks) + 1
    panels = below.subplots(len(shown), columns, squeeze=False)
    below.suptitle("Connections of the first layer by pixel (first seed)", fontsize=11)
    top = max(int(mask.max()) for method in shown for mask in runs[method][0].masks.values())
    for line, method in zip(panels, shown, strict=True):
        for panel, (step, mask) in zip(line, runs[method][0].masks.items(), strict=False):
            picture = panel.imshow(mask, cmap="viridis", vmin=0, vmax=top)
            panel.set_title(f"{LABELS[method]}, step {step}", fontsize=9)
        line[-1].imshow(digits.images.mean(0).reshape(8, 8), cmap="gray")
        line[-1].set_title("mean digit", fontsize=9)
        for panel in line:
            panel.set_xticks([])
            panel.set_yticks([])
    below.colorbar(picture, ax=list(panels[:, :-1].flat), shrink=0.8, label="connections")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(options.out) as temporary:
        figure.savefig(temporary, format=options.out.suffix[1:] or "png", dpi=130)
    plt.close(figure)


def _floor(runs: dict[str, list[Run]]) -> float:
    """Return the lowest accuracy after the first eighth of the trainings, in percent."""
    return min(
        100 * accuracy
        for found in runs.values()
        for run in found
        for step, accuracy in run.accuracy.items()
        if step >= max(run.accuracy) // 8
    )


def report(runs: dict[str, list[Run]], options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all runs."""
    methods = {}
    for method, found in runs.items():
        final = [run.final for run in found]
        methods[method] = {
            "accuracy": final,
            "mean": statistics.mean(final),
            "deviation": statistics.stdev(final) if len(final) > 1 else 0.0,
            "connections": found[0].connections,
            "seconds": statistics.median(run.seconds for run in found),
        }
    setting = {
        name: getattr(options, name)
        for name in ("sparsity", "structure", "execution", "steps", "width", "seeds", "update_every")
    }
    return {**setting, "methods": methods, "picture": str(options.out)}


def show(found: dict[str, Any], console: Console) -> None:
    """Print the table."""
    table = Table(title=f"held-out accuracy after {found['steps']} steps, {found['seeds']} seeds")
    for name in ("method", "connections", "mean", "deviation", "by seed", "seconds"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method, row in found["methods"].items():
        table.add_row(
            LABELS[method],
            f"{row['connections']:,}",
            f"{row['mean']:.2%}",
            f"{row['deviation']:.2%}",
            " ".join(f"{accuracy * 100:.1f}" for accuracy in row["accuracy"]),
            f"{row['seconds']:.1f}",
        )
    console.print(table)
    console.print(f"picture: {found['picture']}")


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sparsity", type=float, default=0.9, help="share of removed weights (0.9)")
    parser.add_argument(
        "--structure", choices=("unstructured", "fan-in", "block"), default="unstructured",
        help="structure of the connections; blocks are 8x8",
    )  # fmt: skip
    parser.add_argument(
        "--execution", choices=("sparse", "dense"), default="dense",
        help="multiply stored weights only, or unpack them per product (faster at this size)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=128, help="hidden units, a multiple of 8")
    parser.add_argument("--update-every", type=int, default=20, help="steps between mask updates")
    parser.add_argument("--drop-fraction", type=float, default=0.3)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; more are slower here (1)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for dynamic_sparsity.png, or a picture file"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args(words)
    if options.steps < 1 or options.seeds < 1 or options.threads < 1 or options.width < 8:
        parser.error("--steps, --seeds and --threads must be at least 1, --width at least 8")
    if not 0 < options.sparsity < 1:
        parser.error(f"--sparsity must be above 0 and below 1, got {options.sparsity}")
    if not options.out.suffix:
        options.out = options.out / "dynamic_sparsity.png"
    return options


def main(words: list[str] | None = None) -> int:
    """Run the demo."""
    options = arguments(words)
    console = Console(stderr=options.json)
    torch.set_num_threads(options.threads)
    try:
        digits = load_digits()
        runs: dict[str, list[Run]] = {method: [] for method in METHODS}
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("training", total=len(METHODS) * options.seeds * options.steps)
            for seed in range(options.seeds):
                for method in METHODS:
                    progress.update(task, description=f"{LABELS[method]}, seed {seed}")
                    runs[method].append(train(method, seed, digits, options, lambda: progress.advance(task)))
        draw(runs, digits, options)
    except (ValueError, OSError) as error:
        console.print(f"error: {failure(error)}", style="red", markup=False)
        return 1
    found = report(runs, options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found, console)
    return 0


if __name__ == "__main__":
    with reported_file_errors("dynamic_sparsity"):
        sys.exit(main())
