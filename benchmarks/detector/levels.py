"""Levels of the detector: time and precision of each candidate, and frames kept within a time budget.

    python -m benchmarks.detector.levels --device cpu

Every candidate of `level_candidates` detects in the 26 development frames. Times cover whole calls, host
points to host boxes, with all candidates interleaved on the same frame. Then the default levels of this
device run under budgets, the frames several times over, as a robot would run them.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.detector.level_candidates import candidates, level_facts, without_taps
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show, write
from benchmarks.lib.scenes import default_data
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from perception.budget import BudgetedDetector, default_levels
from perception.checkpoints.weights import load_weights
from perception.data import Frame, open_data_set
from perception.data.kitti import write_objects
from perception.detector import Detector
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.kitti.judge import detections_to_objects
from perception.types import Detections
from sparse_core.dynamic import BudgetWarning

_WEIGHTS = "pointpillars-kitti"
#: Budgets as shares of the first level's median, and the last one that no level can meet.
_BUDGETS = (1.5, 1.0, 0.8, 0.65, 0.01)
#: Taps of nine whose weights are zero, in cases without a time: no kernel here skips taps.
_TAPS = (1, 2, 3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    data_set = open_data_set(options.data, None if options.split == "all" else options.split)
    frames = data_set[: options.frames]
    settings = {
        name: getattr(options, name)
        for name in ("device", "split", "frames", "rounds", "loops", "threads", "seed", "quick")
    }
    values = result(
        "levels",
        device,
        settings | {"weights": _WEIGHTS},
        frames={"kind": f"KITTI {options.split}", "names": [frame.frame_id for frame in frames]},
        cases=[],
        budgets=[],
        notes=[],
    )
    _measure(values, frames, options)
    save(values, options)
    show(values, tables(values, "levels-cpu", "levels-budgets-cpu"), values["notes"], as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "levels", quick="few rounds, default levels only")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder with labels")
    parser.add_argument("--split", default="val", help="ImageSets list, or 'all' (default: val)")
    parser.add_argument("--frames", type=int, help="only the first of the split")
    parser.add_argument(
        "--rounds", type=int, help="calls of each candidate on each frame (5; 1 with --quick)"
    )
    parser.add_argument("--loops", type=int, help="times that a budget sees all frames (4; 1 with --quick)")
    parser.add_argument(
        "--budget-s", type=float, default=float("inf"), help="prepare no candidate after this"
    )
    options = parse(parser, arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.loops = options.loops or (1 if options.quick else 4)
    return options


def _measure(values: dict[str, Any], frames: list[Frame], options: argparse.Namespace) -> None:
    """Fill the result and write it after each part."""
    start = time.perf_counter()
    whole = Detector.from_pretrained(_WEIGHTS, device=options.device).reporting_everything()
    chosen = default_levels(fast=whole.fast)
    wanted = chosen if options.quick else (*chosen, *(level for level in candidates() if level not in chosen))
    sides: dict[str, BudgetedDetector] = {}
    for level in wanted:
        if time.perf_counter() - start > options.budget_s:
            values["notes"].append(f"left out after {options.budget_s:.0f} s: {level.name}")
            continue
        _progress(start, level.name)
        # A detector of one level: what it takes holds the choice of pillars.
        sides[level.name] = BudgetedDetector(whole, 1.0, levels=[level])
        side = partial(_detect, sides[level.name])
        found = [side(frame) for frame in frames]
        case = {"name": level.name, "default": level in chosen, "level": level_facts(level)}
        values["cases"].append(case | {"precision": precision(frames, found), "boxes": _median_boxes(found)})
    _progress(start, "times")
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for index, frame in enumerate(frames):
        calls = {name: partial(_detect, side, frame) for name, side in sides.items()}
        timed = interleave(
            calls, torch.device(options.device), rounds=options.rounds, seed=options.seed + index
        )
        for name, times in timed.items():
            samples[name] += times
    for case in values["cases"]:
        times = samples[case["name"]]
        case["time"] = Summary.of(times).to_dict()
        case["samples_ms"] = [round(value, 3) for value in times]
        case["of_all"] = paired_ratio(times, samples[chosen[0].name])
    write(values, options.out)
    first_ms = values["cases"][0]["time"]["median_ms"]
    budgeted = BudgetedDetector(whole, first_ms / 1e3)
    for share in _BUDGETS:
        _progress(start, f"budget of {share:g} of the first level")
        budget = _under_budget(budgeted, frames, share * first_ms / 1e3, options.loops)
        values["budgets"].append({"of_first": share} | budget)
        write(values, options.out)
    if not options.quick:
        _zeroed_taps(values, frames, options, start)


def _detect(detector: BudgetedDetector, frame: Frame) -> Detections:
    # Nothing is chosen: the only level runs.
    return detector.at(detector.levels[0].name, frame.cloud)


def precision(frames: list[Frame], found: list[Detections]) -> dict[str, Any]:
    """AP40 in percent: cars at IoU 0.7 and 0.5 in 3D and from above, cyclists at 0.5."""
    labels = {frame.frame_id: frame.objects for frame in frames}
    with TemporaryDirectory() as folder:
        for frame, boxes in zip(frames, found, strict=True):
            objects = detections_to_objects(boxes, frame.calibration, frame.image_size)
            write_objects(Path(folder) / f"{frame.frame_id}.txt", objects)
        strict = evaluate_kitti(labels, folder, classes=("Car", "Cyclist")).to_dict()
        loose = evaluate_kitti(labels, folder, classes=("Car",), min_overlaps={"Car": 0.5}).to_dict()

    def rounded(entry: dict[str, float | None]) -> dict[str, float | None]:
        return {name: None if value is None else round(value, 2) for name, value in entry.items()}

    return {
        "car_3d": rounded(strict["Car"]["3d"]["AP40"]),
        "car_3d_loose": rounded(loose["Car"]["3d"]["AP40"]),
        "cyclist_3d": rounded(strict["Cyclist"]["3d"]["AP40"]),
    }


def _zeroed_taps(
    values: dict[str, Any], frames: list[Frame], options: argparse.Namespace, start: float
) -> None:
    for taps in _TAPS:
        if time.perf_counter() - start > options.budget_s:
            values["notes"].append(f"left out after {options.budget_s:.0f} s: {taps} taps of 9 zero")
            continue
        _progress(start, f"{taps} taps of 9 zero")
        network = without_taps(load_weights(_WEIGHTS), taps)
        detector = Detector(network, device=options.device).reporting_everything()
        found = [detector(frame.cloud) for frame in frames]
        values["cases"].append(
            {
                "name": f"{taps} of 9 taps zero",
                "default": False,
                "level": None,
                "precision": precision(frames, found),
                "boxes": _median_boxes(found),
                "time": None,
            }
        )


def _under_budget(
    detector: BudgetedDetector, frames: list[Frame], budget_s: float, loops: int
) -> dict[str, Any]:
    detector.set_budget(budget_s)
    # Measuring begins anew: what an earlier budget has told is forgotten.
    detector.measure(max((frame.cloud for frame in frames), key=len))
    before = {use.level.name: use.frames for use in detector.uses()}
    found, taken = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", BudgetWarning)
        for _ in range(loops):
            for frame in frames:
                found.append(detector(frame.cloud))
                taken.append(1e3 * detector.elapsed_s)
    assert detector.controller is not None
    return {
        "budget_ms": round(1e3 * budget_s, 4),
        "within": round(float(np.mean(np.array(taken) <= 1e3 * budget_s)), 4),
        "time": Summary.of(taken).to_dict(),
        "switches": detector.controller.switches,
        "warnings": sum(issubclass(entry.category, BudgetWarning) for entry in caught),
        "frames": {use.level.name: use.frames - before[use.level.name] for use in detector.uses()},
        "precision": precision(frames, found[-len(frames) :]),
    }


def _median_boxes(found: list[Detections]) -> float:
    return float(np.median([len(boxes) for boxes in found]))


def _progress(start: float, message: str) -> None:
    print(f"[{time.perf_counter() - start:.0f} s] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
