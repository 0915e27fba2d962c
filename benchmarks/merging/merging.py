"""Merging: time and memory against plain implementations that sort fully, and bytes of task vectors.

    python -m benchmarks.merging.merging
    python -m benchmarks.merging.merging --device cuda

Random models in memory are merged tensor by tensor by TIES at 20 % density. The sides are this library and a
plain torch implementation that sorts every delta fully, with ``torch.argsort`` and with its stable form.
Results are compared first. With the stable sort every number is equal up to the rounding of sums; the other
sort may choose differently among equal magnitudes only.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.process_memory import peak_bytes, reset_peak, resident_bytes
from benchmarks.lib.results import result, save, show, write
from benchmarks.lib.timing import Summary, paired_ratio, time_once
from benchmarks.merging.plain import compare, model_sizes, plain_ties
from benchmarks.publish.screen import tables
from sparse_core.merging import TaskVector, merge, save_task_vector

State = dict[str, Tensor]
DENSITY = 0.2
_OURS, _PLAIN, _STABLE = "thresholds", "argsort", "stable argsort"
_NOTES = [
    "argsort: torch.argsort of the magnitudes of every delta, then the formulas of TIES on whole tensors;"
    " stable argsort: the same with stable=True. torch sorts a tensor on one thread of a CPU.",
    "beyond the models: the highest memory of a merge over what the models take; the result is in it.",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "merging", quick="small models: the numbers mean nothing")
    parser.add_argument("--sizes", type=float, nargs="+", help="parameters of a model (1e7 1e8; 4e6)")
    parser.add_argument(
        "--rounds", type=int, nargs="+", help="times each side is timed, for each size (3 1; on a GPU 7 5; 1)"
    )
    parser.add_argument("--models", type=int, default=8, help="models to merge (8)")
    parser.add_argument(
        "--stable-up-to", type=float, default=3e7, help="largest size that is sorted stably too (3e7)"
    )
    options = parse(parser, arguments)
    quick, gpu = options.quick, options.device == "cuda"
    options.sizes = [int(size) for size in options.sizes or ([4e6] if quick else [1e7, 1e8])]
    rounds = options.rounds or ([1] if quick else [7, 5] if gpu else [3, 1])
    options.rounds = (rounds + rounds[-1:] * len(options.sizes))[: len(options.sizes)]
    if options.models < 1 or min(options.rounds) < 1 or min(options.sizes) < 1000:
        parser.error("--models and --rounds must be at least 1, --sizes at least 1000")
    device = torch.device(options.device)
    configure(device, options.threads)
    settings = asked(options)
    values: dict[str, Any] = {}
    cases: list[dict[str, Any]] = []
    for size, count in zip(options.sizes, options.rounds, strict=True):
        cases.append(measure(options, size, count, device, with_files=not cases))
        # Write after each size, so that an interrupted run keeps its results.
        values = result("merging", device, settings, cases=cases, notes=_NOTES)
        write(values, options.out)
    save(values, options)
    show(values, tables(values, "merging-speed", "merging-vectors"), _NOTES, as_json=options.json)
    return 0 if all(side["agrees"] for case in cases for side in case["compared"].values()) else 1


def measure(
    options: argparse.Namespace, size: int, rounds: int, device: torch.device, *, with_files: bool
) -> dict[str, Any]:
    """One size: what the sides give, how long they take, how much memory, and bytes of a task vector."""
    sizes = model_sizes(size)
    base, *vectors = _models(sizes, options.models, options.seed, device)

    def ours() -> State:
        return merge(base, vectors, "ties", 1.0, DENSITY)

    def plain(stable: bool) -> State:
        return {
            name: plain_ties(base[name], [vector[name] for vector in vectors], DENSITY, stable=stable)
            for name in base
        }

    sides: dict[str, Callable[[], State]] = {_OURS: ours, _PLAIN: lambda: plain(False)}
    if size <= options.stable_up_to:
        sides[_STABLE] = lambda: plain(True)
    times: dict[str, list[float]] = {name: [] for name in sides}
    memory: dict[str, int] = {}
    compared: dict[str, dict[str, Any]] = {}
    order, shuffled = list(sides), random.Random(options.seed)
    results: dict[str, State] = {}
    for turn in track(
        range(rounds + (device.type == "cuda")),
        f"{size:,} parameters",
        console=Console(stderr=True),
        disable=options.json,
    ):
        shuffled.shuffle(order)
        for name in order:
            results.pop(name, None)
            counted = _Counted(device)

            def side(name: str = name) -> None:
                results[name] = sides[name]()

            taken = time_once(side, device)
            memory[name] = max(memory.get(name, 0), counted.beyond())
            # On a GPU the first calls load kernels.
            if turn or device.type == "cpu":
                times[name].append(taken)
        if not compared:
            for name in sides:
                if name != _OURS:
                    compared[name] = compare(
                        results[_OURS], results[name], vectors, DENSITY, ties=name == _PLAIN
                    )
    return {
        "parameters": sum(sizes.values()),
        "tensors": len(sizes),
        "models": options.models,
        "density": DENSITY,
        "rounds": rounds,
        "time": {name: Summary.of(taken).to_dict() for name, taken in times.items()},
        "samples_ms": {name: [round(one, 3) for one in taken] for name, taken in times.items()},
        "over": {name: paired_ratio(times[name], times[_OURS]) for name in sides if name != _OURS},
        "compared": compared,
        "model_bytes": sum(value.nbytes for value in base.values()),
        "beyond_the_models_bytes": memory,
        "task_vector": _bytes(vectors[0]) if with_files else [],
    }


def _models(sizes: dict[str, int], count: int, seed: int, device: torch.device) -> list[State]:
    """A base, and deltas of a hundredth of its size."""
    generator = torch.Generator(device).manual_seed(seed)

    def made(scale: float) -> State:
        return {
            name: torch.randn(size, generator=generator, device=device).mul_(scale)
            for name, size in sizes.items()
        }

    return [made(1.0), *(made(0.01) for _ in range(count))]


class _Counted:
    """Memory that is taken from here on, at most."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
        else:
            reset_peak()
            self.before = resident_bytes() or 0

    def beyond(self) -> int:
        """Bytes over what was taken before."""
        cuda = self.device.type == "cuda"
        return (torch.cuda.max_memory_allocated(self.device) if cuda else peak_bytes()) - self.before


def _bytes(vector: State) -> list[dict[str, Any]]:
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


if __name__ == "__main__":
    sys.exit(main())
