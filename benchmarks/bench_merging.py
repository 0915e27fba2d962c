"""Merging: time and memory against a plain full sort, bytes of task vectors, and quality on two tasks.

    python benchmarks/bench_merging.py

Speed: models made from a seed, in memory, merged tensor by tensor by TIES at 20 % density, here and by a
plain implementation in torch that sorts every delta fully. Both results must be equal. Quality: a small
Transformer that knows all handwritten digits of scikit-learn a little is tuned on the digits 0 to 4 and on
5 to 9; merges of both are measured on all of them, for several seeds, with settings chosen on the validation
images. On a machine that others use, --threads 1 keeps torch's threads from waiting for each other.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from benchmarks.memory import peak_bytes, reset_peak, resident_bytes
from benchmarks.options import common_parser, configure, parse
from benchmarks.pruning_models import Digits, accuracy, build, fit, load_split
from benchmarks.results import RESULTS, number, result, show, table, write
from sparse_core.merging import TaskVector, loss_along_path, merge, save_task_vector

DENSITY, SCALE = 0.2, 1.0
#: Share of the parameters in each kind of tensor, like a Transformer: an embedding, and layers of matrices.
_LAYERS = 12
#: What is tried on the validation images for each way to merge.
_GRIDS: dict[str, list[dict[str, Any]]] = {
    "average": [{"weight": 0.5}],
    "task arithmetic": [{"weight": weight} for weight in (0.3, 0.5, 0.7, 0.9)],
    "TIES": [{"density": d, "scale": s} for d in (0.2, 0.5, 0.8) for s in (0.7, 1.0, 1.3)],
    "DARE-TIES": [{"density": d, "weight": w} for d in (0.5, 0.8) for w in (0.5, 0.7, 0.9)],
    "breadcrumbs": [{"density": d, "weight": w} for d in (0.5, 0.85) for w in (0.5, 0.7, 0.9)],
}
_METHODS = {
    "average": "task_arithmetic",
    "task arithmetic": "task_arithmetic",
    "TIES": "ties",
    "DARE-TIES": "dare_ties",
    "breadcrumbs": "breadcrumbs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "merging", quick="small models and few seeds: the numbers mean nothing")
    parser.add_argument("--size", type=float, help="parameters of a model (1e8; 4e6 with --quick)")
    parser.add_argument("--models", type=int, default=8, help="models to merge (8)")
    parser.add_argument("--rounds", type=int, help="times each side is timed (3; 1)")
    parser.add_argument("--seeds", type=int, help="networks of the quality part (5; 2)")
    parser.add_argument("--parts", nargs="+", choices=("speed", "quality"), default=["speed", "quality"])
    options = parse(parser, arguments)
    if options.device != "cpu":
        parser.error("--device cuda: this benchmark runs on the CPU")
    device = torch.device("cpu")
    configure(device, options.threads)
    quick = options.quick
    options.size = int(options.size or (4e6 if quick else 1e8))
    options.rounds = options.rounds or (1 if quick else 3)
    options.seeds = options.seeds or (2 if quick else 5)
    found: dict[str, Any] = {}
    if "speed" in options.parts:
        found["speed"] = speed(options)
    if "quality" in options.parts:
        found["quality"] = quality(options)
    settings = {key: value for key, value in vars(options).items() if key not in ("out", "json")}
    notes = [
        "speed: the plain side is the full stable argsort of every delta, then the same formulas on whole"
        " tensors; equal: the largest difference between both results.",
        "quality: accuracy on test images of the digits 0 to 4, of 5 to 9, and of all.",
    ]
    values = result("merging", device, settings, **found, notes=notes)
    write(values, options.out or RESULTS / "merging-cpu.json")
    show(values, _tables(found), notes, as_json=options.json)
    return 0


def tensor_sizes(parameters: int) -> dict[str, int]:
    """Sizes of the tensors of a model: an embedding of a fifth, and layers of six matrices."""
    embedding = parameters // 5
    matrix = (parameters - embedding) // (6 * _LAYERS)
    sizes = {"embed.weight": embedding}
    sizes |= {f"layers.{layer}.{part}.weight": matrix for layer in range(_LAYERS) for part in range(6)}
    return sizes


def plain_ties(base: Tensor, deltas: Sequence[Tensor], density: float) -> Tensor:
    """TIES with weights of one as one would write it: sort everything, then whole-tensor formulas."""
    kept = []
    for delta in deltas:
        order = torch.argsort(delta.abs(), descending=True, stable=True)
        mask = torch.zeros_like(delta, dtype=torch.bool)
        mask[order[: int(density * delta.numel() + 1e-6)]] = True
        kept.append(torch.where(mask, delta, 0.0))
    stacked = torch.stack(kept)
    sign = torch.where(stacked.sum(0) >= 0, 1.0, -1.0)
    agrees = stacked.sign() == sign
    mean = (stacked * agrees).sum(0) / agrees.sum(0).clamp_min(1)
    return base + SCALE * mean


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Both sides on the same models, in turns; and the memory that each needs beyond the models."""
    sizes = tensor_sizes(options.size)
    generator = torch.Generator().manual_seed(options.seed)
    base = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    vectors = [
        {name: 0.01 * torch.randn(size, generator=generator) for name, size in sizes.items()}
        for _ in range(options.models)
    ]

    def ours() -> dict[str, Tensor]:
        return merge(base, vectors, "ties", 1.0, DENSITY, scale=SCALE)

    def plain() -> dict[str, Tensor]:
        return {name: plain_ties(base[name], [vector[name] for vector in vectors], DENSITY) for name in base}

    sides: dict[str, Callable[[], dict[str, Tensor]]] = {"thresholds": ours, "full argsort": plain}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    memory: dict[str, int] = {}
    results: dict[str, dict[str, Tensor]] = {}
    for turn in track(range(options.rounds), "speed", console=Console(stderr=True), disable=options.json):
        for name, side in sides.items():
            results.pop(name, None)
            before = resident_bytes() or 0
            counted = reset_peak()
            start = time.perf_counter()
            results[name] = side()
            seconds[name].append(time.perf_counter() - start)
            if counted and turn == 0:
                memory[name] = peak_bytes() - before
    difference = max(
        float((results["thresholds"][name] - results["full argsort"][name]).abs().max()) for name in base
    )
    if difference > 1e-5:
        raise SystemExit(f"bench_merging: the results differ by {difference:.3g}")
    times = {name: statistics.median(taken) for name, taken in seconds.items()}
    return {
        "parameters": sum(sizes.values()),
        "models": options.models,
        "density": DENSITY,
        "seconds": {name: {"median": round(times[name], 4), "all": seconds[name]} for name in sides},
        "times_as_fast": round(times["full argsort"] / times["thresholds"], 2),
        "beyond_the_models_bytes": memory,
        "result_bytes": sum(value.nbytes for value in base.values()),
        "largest_difference": difference,
        "task_vector": _bytes(vectors[0]),
    }


def _bytes(vector: dict[str, Tensor]) -> list[dict[str, Any]]:
    """File sizes of one task vector at 10 % density."""
    trimmed = TaskVector(vector).trim(0.1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for values in ("int4", "int8", "float16"):
            made = save_task_vector(trimmed, Path(folder, "v.safetensors"), values=values)
            share = made.nbytes / made.dense_float32
            rows.append(
                {
                    "values": values,
                    "bytes": made.nbytes,
                    "of_float32": round(share, 5),
                    "of_16_bits": round(2 * share, 5),
                }
            )
    return rows


def quality(options: argparse.Namespace) -> dict[str, Any]:
    """Accuracies of the models and of their merges, over seeds."""
    runs = [
        _run(seed, options.quick)
        for seed in track(
            range(options.seed, options.seed + options.seeds),
            "quality",
            console=Console(stderr=True),
            disable=options.json,
        )
    ]
    rows = {}
    for name in runs[0]["rows"]:
        rows[name] = {
            part: _spread([run["rows"][name][part] for run in runs]) for part in ("low", "high", "all")
        }
    return {
        "rows": rows,
        "settings": [run["settings"] for run in runs],
        "barriers": _spread([run["barrier"] for run in runs]),
    }


def _run(seed: int, quick: bool) -> dict[str, Any]:
    """One base, its two tuned models, and the merges with the settings that the validation images choose."""
    split = load_split(torch.device("cpu"))
    groups = {"low": lambda labels: labels < 5, "high": lambda labels: labels >= 5}
    torch.manual_seed(seed)
    base = build("transformer")
    fit(base, split.training, steps=20 if quick else 80, peak_rate=3e-3, seed=seed)
    tuned = []
    for index, rule in enumerate(groups.values()):
        model = copy.deepcopy(base)
        part = _part(split.training, rule)
        fit(model, part, steps=20 if quick else 150, peak_rate=1e-3, seed=1000 + 2 * seed + index)
        tuned.append(model)
    vectors = [TaskVector.between(base, model) for model in tuned]
    scored = copy.deepcopy(base)

    def scores(state: dict[str, Tensor], digits: Digits) -> dict[str, float]:
        scored.load_state_dict(state)
        parts = {name: accuracy(scored, _part(digits, rule)) for name, rule in groups.items()}
        return {**parts, "all": accuracy(scored, digits)}

    names = ("base", "tuned on 0-4", "tuned on 5-9")
    singles = zip(names, (base, *tuned), strict=True)
    rows = {name: scores(model.state_dict(), split.test) for name, model in singles}
    chosen: dict[str, dict[str, Any]] = {}
    for name, grid in _GRIDS.items():
        merges = [merge(base, vectors, _METHODS[name], seed=seed, **choice) for choice in grid]
        found = [scores(state, split.validation)["all"] for state in merges]
        best = found.index(max(found))
        chosen[name] = grid[best]
        rows[name] = scores(merges[best], split.test)

    def loss(model: nn.Module) -> float:
        return float(nn.functional.cross_entropy(model(split.test.images), split.test.labels))

    path = loss_along_path(base, tuned[0], tuned[1], loss)
    return {"rows": rows, "settings": chosen, "barrier": path.barrier}


def _part(digits: Digits, rule: Callable[[Tensor], Tensor]) -> Digits:
    chosen = rule(digits.labels)
    return Digits(digits.images[chosen], digits.labels[chosen])


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": round(statistics.fmean(values), 6),
        "std": round(statistics.stdev(values), 6) if len(values) > 1 else None,
        "values": [round(value, 6) for value in values],
    }


def _tables(found: dict[str, Any]) -> list[Table]:
    tables = []
    if "speed" in found:
        part = found["speed"]
        tables.append(
            table(
                f"TIES of {part['models']} models of {part['parameters']:,} parameters:"
                f" {part['times_as_fast']} times as fast",
                ["side", "seconds", "MB beyond the models (the result is one of them)"],
                (
                    [
                        name,
                        number(row["median"], 2),
                        number(part["beyond_the_models_bytes"].get(name, 0) / 1e6),
                    ]
                    for name, row in part["seconds"].items()
                ),
            )
        )
        tables.append(
            table(
                "A task vector at 10 % density on disk",
                ["values", "bytes", "of float32", "of 16 bits"],
                (
                    [
                        row["values"],
                        f"{row['bytes']:,}",
                        f"{row['of_float32']:.4f}",
                        f"{row['of_16_bits']:.4f}",
                    ]
                    for row in part["task_vector"]
                ),
            )
        )
    if "quality" in found:
        rows = found["quality"]["rows"]
        tables.append(
            table(
                "Accuracy on two tasks, %",
                ["model", "digits 0-4", "digits 5-9", "all"],
                (
                    [name, *(_percent(row[part]) for part in ("low", "high", "all"))]
                    for name, row in rows.items()
                ),
            )
        )
    return tables


def _percent(found: dict[str, Any]) -> str:
    mean = f"{100 * found['mean']:.1f}"
    return mean if found["std"] is None else f"{mean} ± {100 * found['std']:.1f}"


if __name__ == "__main__":
    sys.exit(main())
