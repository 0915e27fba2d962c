"""Limits per frame all around the sensor: what a wider range costs, and whether a limit loses a box.

    python -m benchmarks.calls.limits --device cpu

Whole scans are detected in the view of the camera, on two squares around the sensor, and without a range. The
same scans are detected with four times the limits; every box from a score of 0.3 on must be found without
them, too. On a CPU the time is that of the process, so that other programs matter little.
Every scan is detected once before the measured rounds: on a GPU a scan that is fuller than those before it
may wait for a larger graph.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show, table
from benchmarks.lib.scenes import default_data, load_full_scans
from benchmarks.lib.timing import Summary
from perception import Detections, Detector
from perception.types import FloatArray

#: Least score of boxes that no limit may lose, and how much more the limits are raised to see that.
SURE, MORE = 0.3, 4.0
#: Half sides of the squares, in metres.
_SQUARES_M = (56.32, 76.8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "limits")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder with whole scans")
    parser.add_argument("--weights", default="pointpillars-kitti")
    parser.add_argument("--rounds", type=int, help="measured rounds over all scans (5; 1 with --quick)")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    device = torch.device(options.device)
    configure(device, options.threads)
    frames = load_full_scans(options.data, 4)
    if frames is None:
        parser.error(
            f"{options.data} has no whole scans (training/velodyne). Name another folder with --data."
        )
    scans = list(frames.points)
    detectors = _detectors(Detector.from_pretrained(options.weights, device=options.device))
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    samples: dict[str, list[float]] = {name: [] for name in detectors}
    for detector in detectors.values():
        for scan in scans:
            detector(scan)
    for _ in range(options.rounds):
        for name, detector in detectors.items():
            samples[name] += [_elapsed_ms(detector, scan, clock) for scan in scans]
    cases = [_case(name, detector, scans, samples[name]) for name, detector in detectors.items()]
    notes = [f"{len(scans)} whole scans of {frames.kind}; milliseconds of {clock.__name__}."]
    values = result("limits", device, asked(options, "data"), frames=len(scans), cases=cases, notes=notes)
    save(values, options)
    show(values, [_table(values)], notes, as_json=options.json)
    return 0 if all(case["lost"] == 0 for case in cases) else 1


def _detectors(ahead: Detector) -> dict[str, Detector]:
    low, high = ahead.config.pillars.heights_m
    squares = {
        f"{2 * half:g} m x {2 * half:g} m": ahead.with_range((-half, -half, low, half, half, high))
        for half in _SQUARES_M
    }
    return {"view of the camera": ahead, **squares, "unbounded": ahead.with_range(None)}


def _elapsed_ms(detector: Detector, scan: FloatArray, clock: Callable[[], float]) -> float:
    started = clock()
    detector(scan)
    return (clock() - started) * 1e3


def _case(name: str, detector: Detector, scans: Sequence[FloatArray], times: list[float]) -> dict[str, Any]:
    """Measure the boxes of a range, and those that more limits would find."""
    reached: Counter[str] = Counter()
    sure = lost = 0
    raised = detector.with_limits(MORE)
    for scan in scans:
        found, more = detector(scan), raised(scan).filter(min_score=SURE)
        reached.update(found.limits_reached)
        sure += len(more)
        lost += missing(found, more)
    return {
        "name": name,
        "limits": list(detector.config.limits),
        "pillars": detector.config.pillars.most_pillars,
        "reached": dict(reached),
        "sure": sure,
        "lost": lost,
        "time": Summary.of(times).to_dict(),
    }


def missing(found: Detections, wanted: Detections) -> int:
    """Count boxes that have no equal box of their class, within a centimetre."""
    count = 0
    for box, _, label in wanted:
        own = found.boxes[np.array([other == label for other in found.labels], np.bool_)]
        count += not (len(own) and np.abs(own[:, :6] - box[:6]).max(axis=1).min() < 0.01)
    return count


def _table(values: dict[str, Any]) -> Any:
    heads = [
        "range",
        "peaks, proposals, boxes",
        "pillars",
        "frames at a limit",
        ">= 0.3",
        "lost",
        "ms",
        "p99",
    ]
    return table(
        "Limits per frame",
        heads,
        (
            [
                case["name"],
                ", ".join(map(str, case["limits"])),
                str(case["pillars"]),
                str(max(case["reached"].values(), default=0)),
                str(case["sure"]),
                str(case["lost"]),
                f"{case['time']['median_ms']:.1f}",
                f"{case['time']['p99_ms']:.1f}",
            ]
            for case in values["cases"]
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
