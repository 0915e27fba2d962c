"""Prune a model with one option; compare accuracy, size on disk and latency of dense, pruned and packed
models.

Without --model, a small network learns scikit-learn's digits first. With it, a function returns your model, a
list of calibration batches and a function that returns the accuracy. A fourth value may be the labels of each
batch; without them, --fine-tune trains on the dense model's answers. In mine.py:

    import torch
    from my_project import Network, test_batches, training_batches

    def task():
        model = Network()
        model.load_state_dict(torch.load("weights.pt"))
        def evaluate(model):  # dense, pruned or packed, on --device and in --dtype
            like = next(model.parameters())
            hits = [model(x.to(like)).argmax(1).cpu() == y for x, y in test_batches()]
            return torch.cat(hits).float().mean().item()
        return model, [x for x, y in training_batches()][:16], evaluate

    python demos/prune_model.py --model mine.py:task --method wanda --fine-tune 500 --save mine.safetensors
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import statistics
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pruning_task import Task, digits_task, fit, logits_of, own_task
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_model
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from sparse_core.common.commands import failure, reported_file_errors
from sparse_core.common.files import replacing
from sparse_core.nm import (
    Block,
    DistillationLoss,
    GradientScore,
    MaskRefresher,
    NMPattern,
    PruneReport,
    attach_masks,
    collect_inputs,
    prune,
    save_packed,
    sparsify,
)

METHODS = ("magnitude", "gradient", "wanda", "sparsegpt", "sr-ste", "distil")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TURNS, BUDGET_S = 200, 0.7
COLOURS = {"dense": "#a3adb8", "pruned": "#56b4e9", "sparse layers": "#0072b2", "sparse + int8": "#d55e00"}


def prune_and_train(
    task: Task, model: nn.Module, options: argparse.Namespace, console: Console
) -> tuple[PruneReport, dict[str, Tensor]]:
    """Prune ``model`` and fine-tune it; return the pruning report and the final masks."""
    dense = copy.deepcopy(model)
    how: dict[str, Any] = {}
    if options.method in ("wanda", "sparsegpt"):
        sequential = options.method == "sparsegpt"
        how = {"score": options.method, "calibration": task.batches, "sequential": sequential}
    elif options.method == "gradient":
        how = {"score": "gradient", "gradient": GradientScore(model, options.select)}
        for step in range(len(task.batches)):
            model.zero_grad()
            task.loss(model, step).backward()
            how["gradient"].update()
    report = prune(model, options.pattern, select=options.select, progress=options.bars, **how)
    if not options.fine_tune:
        return report, report.masks
    sr_ste = options.method == "sr-ste"
    if sr_ste:
        # SR-STE also trains dropped weights, which can return, so they start from their dense values.
        model.load_state_dict(dense.state_dict())
    handle = attach_masks(model, report.masks, estimator="sr-ste" if sr_ste else "fixed")
    refresher = MaskRefresher(handle, options.pattern, every=10, freeze_after=options.fine_tune * 3 // 4)
    distil = DistillationLoss(dense, alpha=0.9) if options.method == "distil" else None

    def loss(step: int) -> Tensor:
        if sr_ste:
            refresher.step()
        return task.loss(model, step, distil)

    fit(model, loss, options.fine_tune, options.learning_rate, console)
    masks = {name: mask.clone() for name, mask in handle.masks.items()}
    handle.remove()
    return report, masks


def measure(models: dict[str, nn.Module], batch: Any, rows: int) -> dict[str, float]:
    """Return median milliseconds per call, interleaved, so that other load affects all models equally."""
    batch = tree_map_only(Tensor, lambda x: x[torch.arange(rows, device=x.device) % len(x)], batch)
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    samples: dict[str, list[float]] = {name: [] for name in models}
    started = time.perf_counter()
    for turn in range(TURNS):
        if turn > 5 and time.perf_counter() - started > BUDGET_S:
            break
        # Shuffle the order, because the previous model determines the cache content.
        for name in random.Random(turn).sample(list(models), len(models)):
            wait()
            begin = time.perf_counter()
            logits_of(models[name], batch)
            wait()
            samples[name].append((time.perf_counter() - begin) * 1e3)
    # The first turn warms up.
    return {name: statistics.median(taken[1:]) for name, taken in samples.items()}


def compare(
    options: argparse.Namespace, console: Console
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Prune, convert and measure; return the reports, the table, and the library's warnings about speed."""
    if options.model:
        task = own_task(options.model, options.device)
    else:
        task = digits_task(options.device, options.checkpoint, console)
    batches, pruned = task.batches, copy.deepcopy(task.model)
    reports: dict[str, Any] = {}
    common = {"select": options.select, "progress": options.bars}
    reports["pruning"], masks = prune_and_train(task, pruned, options, console)
    pack = partial(sparsify, pruned, options.pattern, masks=masks, inplace=False, **common)
    reports["conversion"] = pack()
    models = {"dense": task.model, "pruned": pruned, "sparse layers": reports["conversion"].model}
    if options.quantise:
        names = [layer.name for layer in reports["conversion"].converted]
        inputs = collect_inputs(pruned, batches, layers=names)
        models["sparse + int8"] = pack(quantise=True, statistics=inputs).model
    if options.dtype is not None:
        dtype = DTYPES[options.dtype]
        models = {name: model.to(dtype) for name, model in models.items()}
        batches = tree_map_only(Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, batches)
    # Record warnings about unpacked weights, which depend on the device and the rows per call.
    recorded = warnings.catch_warnings(record=True)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, recorded as notes:
        found = logits_of(models["sparse layers"], batches[0])
        expected = logits_of(pruned, batches[0])
        change = (found - expected).abs().max()
        if not change <= torch.finfo(found.dtype).eps ** 0.5 * expected.abs().max().clamp_min(1):
            raise SystemExit(f"prune_model: the sparse layers differ from the pruned model by {change:.3g}")
        table: dict[str, Any] = {}
        for name, model in models.items():
            file = Path(folder, f"{name}.safetensors")
            (save_packed if name.startswith("sparse") else save_model)(model, str(file))
            table[name] = {"accuracy": task.evaluate(model), "bytes": file.stat().st_size, "ms": {}}
        for rows in options.rows:
            for name, ms in measure(models, batches[0], rows).items():
                table[name]["ms"][rows] = ms
    if options.save is not None:
        save_packed(models["sparse layers"], options.save)
    return reports, table, [str(note.message) for note in notes]


def row_count(rows: int) -> str:
    return f"{rows} row{'s' * (rows > 1)}"


def picture(table: dict[str, Any], path: Path, title: str) -> Path:
    """Plot accuracy, size and latency as bars, as a PNG."""
    from matplotlib.figure import Figure

    counts = list(table["dense"]["ms"])
    figure = Figure(figsize=(13, 1.4 + 0.28 * len(table) * len(counts)), dpi=120, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    panels = figure.subplots(1, 3, sharey=True)
    for place, (name, row) in enumerate(table.items()):
        bars: list[Any] = [(panels[0], place, 0.7, row["accuracy"], f"{row['accuracy']:.4f}")]
        bars.append((panels[1], place, 0.7, row["bytes"] / 1e6, f"{row['bytes'] / 1e6:.3g} MB"))
        for number, (rows, ms) in enumerate(row["ms"].items()):
            middle = place + 0.8 * ((number + 0.5) / len(counts) - 0.5)
            note = f"{ms:.3g} ms, {row_count(rows)}"
            bars.append((panels[2], middle, 0.7 / len(counts), ms / table["dense"]["ms"][rows], note))
        for axes, middle, height, length, note in bars:
            axes.barh(middle, length, height, color=COLOURS[name])
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}
            axes.annotate(
                note,
                (length, middle),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                bbox=behind,
            )
    for axes, label in zip(
        panels, ("accuracy", "size on disk", "time per call (dashed line: dense)"), strict=True
    ):
        axes.set_xlim(0, axes.dataLim.x1 * 1.45)
        axes.set_title(label, loc="left", fontsize=10)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelbottom=False)
    panels[2].axvline(1, color="#5f6b7a", linewidth=0.8, linestyle="--", zorder=0)
    panels[0].set_yticks(range(len(table)), list(table))
    panels[0].invert_yaxis()
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:] or "png")
    return path


def parse_pattern(text: str) -> NMPattern | Block:
    """Parse ``2:4``, ``block:16`` or ``block:16:0.75``."""
    size, _, dropped = text.removeprefix("block:").partition(":")
    try:
        return Block(int(size), float(dropped or 0.5)) if text.startswith("block:") else NMPattern.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--method", choices=METHODS, default="magnitude", help="pruning method; the last two need training")
    add("--pattern", type=parse_pattern, default="2:4", help="n:m (2:4), or block:SIZE[:SHARE DROPPED]")
    add("--fine-tune", type=int, metavar="STEPS", help="training steps (300 for sr-ste and distil, else 0)")
    add("--learning-rate", type=float, default=1e-3, help="learning rate of fine-tuning")
    add("--quantise", action="store_true", help="also measure int8 weights and inputs")
    add("--model", metavar="FILE.py:FUNCTION", help="prune your own model, see above")
    add("--select", metavar="REGEX", help="prune only layers whose name matches")
    add("--checkpoint", type=Path, help="file to store and resume the digits' dense network")
    add("--device", default="cpu", help="cpu or cuda")
    add("--dtype", choices=DTYPES, help="dtype of the comparison (for the digits on cuda: bfloat16)")
    add("--rows", type=int, nargs="+", default=[1, 64, 1024], help="row counts to time")
    add("--save", type=Path, metavar="FILE", help="write the packed model to a .safetensors file")
    add("--out", type=Path, default=Path("out/prune_model"))
    add("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    least = 10 if options.method in ("sr-ste", "distil") else 0
    if options.fine_tune is None:
        options.fine_tune = 30 * least
    if options.fine_tune < least or min(options.rows) < 1:
        parser.error(f"{options.method} needs --fine-tune of at least {least}, and --rows of at least 1")
    if isinstance(options.pattern, Block) and (options.quantise or options.method == "sparsegpt"):
        parser.error("--quantise and sparsegpt need an n:m pattern")
    if options.model and options.checkpoint:
        parser.error("--checkpoint is for the digits only; load your model's weights in the --model function")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device; use --device cpu")
    if options.dtype is None and not options.model:
        options.dtype = "bfloat16" if options.device.startswith("cuda") else "float32"
    options.bars = not options.json and sys.stdout.isatty()
    return options


def main() -> None:
    """Run the demo."""
    options = parse()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        reports, table, notes = compare(options, Console(stderr=True, quiet=options.json))
    except (OSError, ValueError) as error:
        sys.exit(f"prune_model: {failure(error)}")
    title = f"{options.model or 'digits'}: {options.pattern} by {options.method}"
    title += f", {options.fine_tune} steps" * bool(options.fine_tune)
    title += f"; {options.dtype or ''} on {options.device}".replace("  ", " ")
    chart = picture(table, options.out / "comparison.png", title)
    if options.json:
        plain = {name: report.to_json() for name, report in reports.items()}
        print(json.dumps({"title": title, **plain, "table": table, "notes": notes, "picture": str(chart)}))
        return
    for name, report in reports.items():
        print(f"{name}\n{report}\n")
    print(title)
    shown = Table("", box=None, pad_edge=False)
    for heading in ("accuracy", "bytes", *(f"ms, {row_count(rows)}" for rows in options.rows)):
        shown.add_column(heading, justify="right")
    for name, row in table.items():
        times = [f"{ms:.4f}" for ms in row["ms"].values()]
        shown.add_row(name, f"{row['accuracy']:.4f}", f"{row['bytes']:,}", *times)
    Console().print(shown)
    print(*notes, f"picture: {chart}", sep="\n")


if __name__ == "__main__":
    with reported_file_errors("prune_model"):
        main()
