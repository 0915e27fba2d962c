"""Batches of unequal frames: in the order given, against the order of their density.

    python -m benchmarks.detector.batches --device cpu --threads 2

Batches are drawn from real scans, and from these mixed with simulated scans of sensors with 16 and 64 beams.
On a CPU each thread computes whole frames. The sides are a pool that takes frames in the order given and
``Detector.detect_batch``, which starts with the densest. On a GPU 8 frames share a graph. The sides are the
frames in the order given, sorted by pillars, and dealt so that every 8 hold about as many pillars. Counting
pillars is not timed, so the result is an upper bound of the gain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.scenes import default_data, load_frames
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from perception.detector import Detector
from perception.run.eager import densest_first
from perception.types import Detections, FloatArray

_WEIGHTS = "pointpillars-kitti"
#: Frames that share a graph.
_TOGETHER = 8

Batch = Callable[[], list[Detections]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    detector = Detector.from_pretrained(_WEIGHTS, device=options.device)
    real = list(load_frames(options.data, options.frames, seed=options.seed).points)
    pools = {"real": real, "mixed": real + _simulated(max(1, options.frames // 2), options.seed)}
    rows = [
        {"frames": kind, "batch": size} | _measure(detector, pool, size, options)
        for kind, pool in pools.items()
        for size in options.batches
    ]
    settings = asked(options, "data") | {"weights": _WEIGHTS}
    notes = [
        "Every round draws another batch; both sides see the same ones, paired. Wall time of whole calls."
    ]
    values = result("batches", device, settings, cases=rows, notes=notes)
    save(values, options)
    show(values, [_table(values)], notes, as_json=options.json)
    return 0 if all(row["equal"] is not False for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "batches", quick="few rounds")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder")
    parser.add_argument("--frames", type=int, default=24, help="real scans to draw from")
    parser.add_argument("--batches", type=int, nargs="+", help="frames of a call (8 24; 16 32 on a GPU)")
    parser.add_argument("--rounds", type=int, help="batches drawn for each row (15; 2 with --quick)")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (2 if options.quick else 15)
    options.batches = options.batches or ([8, 24] if options.device == "cpu" else [16, 32])
    return options


def _simulated(count: int, seed: int) -> list[FloatArray]:
    from perception.simulate import SensorModel, simulate_scan

    return [
        simulate_scan(seed=seed + number, sensor=SensorModel.preset(beams)).cloud.points
        for number in range(count)
        for beams in ("16", "64")
    ]


def _measure(
    detector: Detector, pool: list[FloatArray], size: int, options: argparse.Namespace
) -> dict[str, Any]:
    random = np.random.default_rng(options.seed)
    device, on_cpu = torch.device(options.device), options.device == "cpu"
    sides_of = partial(_on_cpu, detector, options.threads) if on_cpu else partial(_on_gpu, detector)
    samples: dict[str, list[float]] = {}
    equal: bool | None = None
    for turn in range(options.rounds):
        sides = sides_of([pool[place] for place in random.integers(len(pool), size=size)])
        if on_cpu and turn == 0:
            equal = _same(*(run() for run in sides.values()))
        for name, times in interleave(sides, device, rounds=1, warmup=int(not on_cpu), seed=turn).items():
            samples.setdefault(name, []).extend(times)
    first = samples["as given"]
    return {
        "equal": equal,
        "sides": {
            name: {
                "time": Summary.of(times).to_dict(),
                "gain": paired_ratio(first, times),
                "samples_ms": [round(value, 3) for value in times],
            }
            for name, times in samples.items()
        },
    }


def _on_cpu(detector: Detector, threads: int, scans: list[FloatArray]) -> dict[str, Batch]:
    def as_given() -> list[Detections]:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            return list(workers.map(detector, scans))

    return {"as given": as_given, "densest first": partial(detector.detect_batch, scans)}


def _on_gpu(detector: Detector, scans: list[FloatArray]) -> dict[str, Batch]:
    order = densest_first([torch.from_numpy(scan) for scan in scans], detector.config.pillars.grid)
    batches = max(1, len(order) // _TOGETHER)
    dealt = [place for first in range(batches) for place in order[first::batches]]
    orders = {"as given": range(len(scans)), "like with like": order, "even sums": dealt}
    return {
        name: partial(detector.detect_batch, [scans[place] for place in places])
        for name, places in orders.items()
    }


def _same(first: list[Detections], second: list[Detections]) -> bool:
    return all(
        np.array_equal(one.boxes, other.boxes) and np.array_equal(one.scores, other.scores)
        for one, other in zip(first, second, strict=True)
    )


def _table(values: dict[str, Any]) -> Any:
    lines = [
        [
            row["frames"],
            str(row["batch"]),
            name,
            number(side["time"]["median_ms"] / row["batch"], 2),
            number(side["gain"]["median"], 3),
            f"{side['gain']['lower_quartile']:.3f} to {side['gain']['upper_quartile']:.3f}",
        ]
        for row in values["cases"]
        for name, side in row["sides"].items()
    ]
    return table("Batches", ["frames", "batch", "order", "ms a frame", "gain", "middle half"], lines)


if __name__ == "__main__":
    sys.exit(main())
