"""Training and inference with sparse layers against the dense baseline: step, update, memory, forward pass.

    python -m benchmarks.layers.dynamic --device cuda

A step is forward, backward and AdamW (torch's fused one on all sides). On a GPU it uses float32 weights and
bfloat16 products in a CUDA graph; on a CPU float32. Every side must agree with a dense network
of the same weights before it is timed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.layers.dynamic_sides import (
    KINDS,
    UPDATE_EVERY,
    Shape,
    Training,
    build,
    disagreement,
    sparse_layers,
)
from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import Side, interleave, paired_ratio
from benchmarks.publish.screen import tables

#: Relative error in the norm: bfloat16 rounds results and gradients.
_TOLERANCE = {"cuda": 2e-2, "cpu": 1e-4}
_STEPS = {
    "cuda": (
        Shape("4096 x 4096", (4096, 4096), 8192),
        Shape("MLP 1024, 4096, 1024", (1024, 4096, 1024), 8192),
        Shape("2048 x 2048", (2048, 2048), 4096),
        Shape("1024 x 1024", (1024, 1024), 8192),
        Shape("1024 x 1024", (1024, 1024), 1024),
        Shape("conv 256, 3x3 at 56²", (256, 256), 16, 56),
    ),
    "cpu": (
        Shape("1024 x 1024", (1024, 1024), 256),
        Shape("MLP 256, 1024, 256", (256, 1024, 256), 512),
        Shape("conv 64, 3x3 at 28²", (64, 64), 8, 28),
    ),
}
_FORWARD = {
    "cuda": {"1024 x 1024": (1024, 1024), "1024 x 4096": (4096, 1024), "4096 x 4096": (4096, 4096)},
    "cpu": {"1024 x 1024": (1024, 1024)},
}
_ROWS = {"cuda": (1, 4, 16, 64, 1024, 8192), "cpu": (1, 16, 256)}
_TRAINED = ("dense", "block 32", "block 64", "unstructured", "unstructured, unpacked", "fan-in, unpacked")
_MORE = {"cuda": ("block 16", "block 128"), "cpu": ("block 16",)}
_RUN = ("dense", "block 16", "block 32", "block 64", "block 128", "fan-in", "unstructured")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    started, notes = time.perf_counter(), list[str]()
    jobs: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    for shape in options.shapes:
        jobs.append(("steps", partial(_step_case, shape, 0.9, options)))
    for shape in options.forward:
        jobs.append(("forward", partial(_forward_case, shape, 0.9, options)))
    for shape in options.shapes:
        for sparsity in (0.8, 0.95):
            jobs.append(("steps", partial(_step_case, shape, sparsity, options)))
    found: dict[str, list[dict[str, Any]]] = {"steps": [], "forward": []}
    for number_, (part, job) in enumerate(jobs):
        if time.perf_counter() - started > options.budget_s:
            notes.append(f"time ran out: {len(jobs) - number_} of {len(jobs)} cases were left out")
            break
        found[part].append(job())
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        _save(found, notes, options, device)
    values = _save(found, notes, options, device)
    show(
        values,
        tables(values, "dynamic-steps", "dynamic-forward", "dynamic-updates", "dynamic-memory"),
        values["notes"],
        as_json=options.json,
    )
    sides = [side for part in found.values() for case in part for side in case["sides"].values()]
    return 0 if all(side["agrees"] for side in sides) else 1


def _save(
    found: dict[str, list[dict[str, Any]]],
    notes: list[str],
    options: argparse.Namespace,
    device: torch.device,
) -> dict[str, Any]:
    """The result so far, written; an interrupted run keeps what it has."""
    settings = {name: getattr(options, name) for name in ("device", "rounds", "threads", "seed", "quick")}
    values = result("dynamic", device, settings, **found, bars=bars(found), notes=list(dict.fromkeys(notes)))
    save(values, options)
    return values


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "dynamic", quick="smallest shapes and few rounds")
    parser.add_argument("--rounds", type=int, help="measured turns of each side (15; 3 with --quick)")
    parser.add_argument("--budget-s", type=float, default=1e9, help="start no further case after so long")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 15)
    options.shapes = list(_STEPS[options.device])
    options.forward = [
        Shape(name, widths, rows)
        for name, widths in _FORWARD[options.device].items()
        for rows in _ROWS[options.device]
    ] + [shape for shape in options.shapes if shape.size]
    if options.quick:
        options.shapes = [Shape("128 x 256", (256, 128), 64), Shape("conv 64, 3x3 at 8²", (64, 64), 2, 8)]
        options.forward = [Shape("128 x 256", (256, 128), 4), Shape("conv 64, 3x3 at 8²", (64, 64), 2, 8)]
    return options


def _names(shape: Shape, names: Sequence[str]) -> list[str]:
    """Sides whose blocks divide the weights."""
    return [name for name in names if all(width % KINDS[name].block == 0 for width in shape.widths)]


def _step_case(shape: Shape, sparsity: float, options: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(options.device)
    names = _names(shape, (*_TRAINED, *(_MORE[device.type] if sparsity == 0.9 else ())))
    runs: dict[str, Side] = {}
    sides: dict[str, dict[str, Any]] = {}
    for name in names:
        training = Training(shape, KINDS[name], sparsity, device)
        error = disagreement(training)
        sides[name] = {
            "error": round(error, 6),
            "agrees": error <= _TOLERANCE[device.type],
            **_updates(training, options),
            **_memory(training),
        }
        runs[name] = training.step
    samples = call_microseconds(
        runs, device, rounds=options.rounds, budget_s=2.5 if device.type == "cuda" else 20, seed=options.seed
    )
    for name, times in samples.items():
        sides[name]["microseconds"] = microseconds(times)
        sides[name]["over_dense"] = paired_ratio(samples["dense"], times)
        if "update_ms" in sides[name]:
            sides[name]["share_in_graph"] = _share(sides[name]["update_ms"], median(times) / 1e3)
    return {**_described(shape), "sparsity": sparsity, "sides": sides}


def _described(shape: Shape) -> dict[str, Any]:
    return {"shape": shape.name, "rows": shape.rows, "widths": list(shape.widths), "size": shape.size}


def _updates(training: Training, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds, by the wall clock, of a step and of what an update adds to it."""
    if not sparse_layers(training.model):
        return {}
    found: dict[str, Any] = {}
    rigl, random = training.scheduler("rigl"), training.scheduler("set")
    sides: dict[str, Side] = {"rigl": training.update(rigl), "set": training.update(random)}
    # One that is never due, so that steps are called as they are in training.
    plain = training.scheduler("rigl")

    def step() -> None:
        plain.steps = 0
        training.gradients()
        plain.step()

    samples = interleave(
        {**sides, "step": step},
        training.device,
        rounds=min(options.rounds, 7),
        warmup=2,
        budget_s=1.0,
        clock="wall",
        seed=options.seed,
    )
    base = median(samples["step"])
    for method in ("rigl", "set"):
        extra = max(0.0, median(samples[method]) - base)
        prefix = "" if method == "rigl" else "set_"
        found[f"{prefix}update_ms"] = round(extra, 4)
        found[f"{prefix}share"] = _share(extra, base)
    found["eager_step_ms"] = round(base, 4)
    rigl._prepare()
    for layer in sparse_layers(training.model):
        layer.collect_growth(False)
    return found


def _share(update_ms: float, step_ms: float) -> float:
    """Share of training that updates take at the default interval."""
    return round(update_ms / (UPDATE_EVERY * step_ms + update_ms), 5)


def _memory(training: Training) -> dict[str, Any]:
    """Bytes between steps, after an update, and at the highest point of a step above them."""
    training.step()
    found = {"held_mb": round(training.held_bytes() / 2**20, 3)}
    if training.device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        training.step()
        torch.cuda.synchronize()
        found["step_peak_mb"] = round((torch.cuda.max_memory_allocated() - before) / 2**20, 3)
    return found


def _forward_case(shape: Shape, sparsity: float, options: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    x = shape.input(device, dtype)
    runs: dict[str, Side] = {}
    sides: dict[str, dict[str, Any]] = {}
    for name in _names(shape, _RUN):
        if shape.size and name in ("fan-in", "unstructured"):
            continue
        model = build(shape, KINDS[name], sparsity, device).to(dtype).eval()

        def run(model: torch.nn.Module = model) -> object:
            with torch.no_grad():
                return model(x)

        error = 0.0
        if layers := sparse_layers(model):
            twin = layers[0].to_dense().float()
            expected = twin(x.float()).detach()
            found = run()
            assert isinstance(found, torch.Tensor)
            error = float((found.float() - expected).norm() / expected.norm())
        sides[name] = {"error": round(error, 6), "agrees": error <= _TOLERANCE[device.type]}
        runs[name] = run
    samples = call_microseconds(
        runs, device, rounds=options.rounds, budget_s=1.0 if device.type == "cuda" else 10, seed=options.seed
    )
    for name, times in samples.items():
        sides[name]["microseconds"] = microseconds(times)
        sides[name]["over_dense"] = paired_ratio(samples["dense"], times)
    return {**_described(shape), "sparsity": sparsity, "sides": sides}


def bars(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Targets: updates under 2 % of training time; structured layers faster than dense at 90 %."""
    steps = [case for case in found["steps"] if case["sparsity"] == 0.9]
    shares = [side["share"] for case in found["steps"] for side in case["sides"].values() if "share" in side]
    return {
        "largest_update_share": max(shares, default=None),
        "steps_faster": {_label(case): _best(case) for case in steps},
        "forward_faster": {_label(case): _best(case) for case in found["forward"]},
    }


def _label(case: dict[str, Any]) -> str:
    return f"{case['shape']}, {case['rows']:,} {'images' if case['size'] else 'rows'}"


def _best(case: dict[str, Any]) -> dict[str, Any]:
    """The fastest structured side."""
    structured = {
        name: side["over_dense"]["median"]
        for name, side in case["sides"].items()
        if name.startswith("block") or name == "fan-in"
    }
    name = max(structured, key=structured.__getitem__)
    return {"side": name, "over_dense": structured[name]}


if __name__ == "__main__":
    sys.exit(main())
