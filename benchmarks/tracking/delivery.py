"""Boxes at the time they are read: streaming AP of our tracks, held and predicted, by latency.

    python -m benchmarks.tracking.delivery

The streaming evaluation follows Li et al., "Towards Streaming Perception" (ECCV 2020): a result counts at the
time somebody reads it, against the labels of that time. `at delivery` reads each result once, when it is
delivered. `streaming` reads every 50 ms and takes the result delivered last. Labels are interpolated between
two frames in the world frame. Latencies are fixed or, with a busy core, measured: the detector shares its
core with a program that never waits, and the newest scan wins as in `perceive live`.

`held` boxes stay in the sensor frame of their scan. `held in the map` moves them by the true motion of the
sensor only. `predicted` is `TrackPredictor.predict`: objects move by their velocity, and the sensor continues
its last motion. With `pose known` the sensor has its true pose. `undelayed` compares the tracks of each scan
with its labels. Coverage is the share of true centres in the circle that holds 90 % by the tracker's
covariance.
Data: the drives in ``$SPARSIGHT_DATA/kitti_sequences``, by default ``../shared/data``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.publish.screen import tables
from benchmarks.tracking.interpolated import InterpolatedLabels, Truth
from perception import Detections, Detector, Tracker
from perception.data import Frame, open_data_set
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.kitti.judge import detections_to_objects
from perception.rigid_motion import inverse
from perception.track import TrackPredictor, Tracks
from perception.track.poses import moved_boxes

Side = Literal["held", "held in the map", "predicted", "predicted, pose known"]
_SIDES: tuple[Side, ...] = get_args(Side)
_LATENCIES_MS = (0.3, 56.0, 84.0)
_CLASSES = ("Car", "Cyclist")
_STEP_NS = 50_000_000
#: A track farther from every label of its class is of none.
_SAME_M = 2.0


class Drive(NamedTuple):
    """A drive: frames, labels at any time, detections of every frame and the seconds they took."""

    name: str
    frames: list[Frame]
    labels: InterpolatedLabels
    found: list[Detections]
    seconds: list[float]


class Delivered(NamedTuple):
    """Tracks of a frame and when they are delivered."""

    predictor: TrackPredictor
    time_ns: int


class Reading(NamedTuple):
    """Tracks that somebody reads, and the labels at that time."""

    tracks: Tracks
    truth: Truth
    frame: Frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "delivery", quick="twenty frames of one drive")
    data = data_root() / "kitti_sequences"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--weights", nargs="+", default=["pointpillars-kitti", "pointpillars-anywhere"])
    options = parse(parser, arguments)
    configure(torch.device("cpu"), 1)
    folders = sorted(options.data.glob("*/"))[: 1 if options.quick else None]
    cases: dict[str, Any] = {}
    for weights in options.weights:
        with _busy_core():
            drives = [_drive(folder, weights, 20 if options.quick else None) for folder in folders]
        cases[weights] = _cases(drives)
    values = result(
        "delivery",
        torch.device("cpu"),
        asked(options, "data") | {"threads": 1, "drives": [folder.name for folder in folders]},
        cases=cases,
        notes=["pointpillars-kitti and pointpillars-anywhere were trained on frames of drive 0001"],
    )
    save(values, options)
    show(values, tables(values, "delivery"), values["notes"], as_json=options.json)
    return 0


def _drive(folder: Path, weights: str, count: int | None) -> Drive:
    frames = list(open_data_set(folder))[:count]
    detector = Detector.from_pretrained(weights)
    detector(frames[0].cloud)
    found, seconds = [], []
    for frame in frames:
        cloud = frame.cloud
        began = time.perf_counter()
        found.append(detector(cloud))
        seconds.append(time.perf_counter() - began)
    return Drive(folder.name, frames, InterpolatedLabels(frames), found, seconds)


@contextmanager
def _busy_core() -> Iterator[None]:
    """Share one core with a program that never waits."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, allowed)


def _cases(drives: Sequence[Drive]) -> list[dict[str, Any]]:
    """Return a row of figures per latency and side."""
    undelayed = [_delivered(drive, [0.0] * len(drive.frames)) for drive in drives]
    rows = [
        {"latency": "none", "side": "undelayed"}
        | _figures([_at_delivery(*pair, "held") for pair in zip(drives, undelayed, strict=True)])
    ]
    latencies: dict[str, list[list[float]]] = {
        f"{latency:g} ms": [[latency * 1e-3] * len(drive.frames) for drive in drives]
        for latency in _LATENCIES_MS
    }
    measured = [drive.seconds for drive in drives]
    latencies[f"busy core, {1e3 * np.median(np.concatenate(measured)):.0f} ms"] = measured
    for latency, seconds in latencies.items():
        delivered = [_delivered(drive, times) for drive, times in zip(drives, seconds, strict=True)]
        for side in _SIDES:
            pairs = list(zip(drives, delivered, strict=True))
            streaming = _figures([_streaming(*pair, side) for pair in pairs])
            rows.append(
                {"latency": latency, "side": side, "results": sum(map(len, delivered))}
                | _figures([_at_delivery(*pair, side) for pair in pairs])
                | {f"streaming_{name}": streaming[name] for name in ("ap", "coverage")}
            )
    return rows


def _delivered(drive: Drive, seconds: Sequence[float]) -> list[Delivered]:
    """Track the frames that a computer with these frame times gets to; one scan waits, the newest."""
    tracker, found, free_ns, number = Tracker(), [], 0, 0
    times = drive.labels.times_ns.tolist()
    while number < len(times):
        while number + 1 < len(times) and times[number + 1] <= free_ns:
            number += 1
        frame = drive.frames[number]
        tracker.update(drive.found[number], pose=frame.pose, time_ns=frame.time_ns)
        free_ns = max(free_ns, times[number]) + round(seconds[number] * 1e9)
        found.append(Delivered(tracker.predictor(), free_ns))
        number += 1
    return found


def _at_delivery(drive: Drive, delivered: Sequence[Delivered], side: Side) -> list[Reading]:
    return _readings(drive, [(one, one.time_ns) for one in delivered], side)


def _streaming(drive: Drive, delivered: Sequence[Delivered], side: Side) -> list[Reading]:
    """Read every 50 ms the result that was delivered last."""
    times = [one.time_ns for one in delivered]
    moments = range(times[0], int(drive.labels.times_ns[-1]), _STEP_NS)
    last = np.searchsorted(times, moments, side="right") - 1
    return _readings(drive, [(delivered[row], now) for row, now in zip(last, moments, strict=True)], side)


def _readings(drive: Drive, moments: Sequence[tuple[Delivered, int]], side: Side) -> list[Reading]:
    found = []
    for one, time_ns in moments:
        truth = drive.labels.at(time_ns)
        if truth is not None:
            found.append(Reading(_read(one.predictor, time_ns, truth, side), truth, drive.frames[0]))
    return found


def _read(predictor: TrackPredictor, time_ns: int, truth: Truth, side: Side) -> Tracks:
    """Return the tracks as a reader gets them, in the sensor frame of the time of reading."""
    tracks = predictor.tracks
    if side == "predicted":
        return predictor.predict(time_ns)
    if side == "predicted, pose known":
        return predictor.predict(time_ns, pose=truth.pose)
    if side == "held":
        return tracks
    boxes = moved_boxes(tracks.map_boxes.astype(np.float64), inverse(truth.pose))
    return replace(tracks, boxes=boxes.astype(np.float32), pose=truth.pose)


def _figures(drives: Sequence[Sequence[Reading]]) -> dict[str, Any]:
    """AP of all drives together, error of centres, and coverage of the circle that holds 90 %."""
    labels, results = {}, {}
    errors: list[float] = []
    radii: list[float] = []
    for number, readings in enumerate(drives):
        for row, reading in enumerate(readings):
            name = f"{number}-{row:05d}"
            calibration, size = reading.frame.calibration, reading.frame.image_size
            labels[name] = reading.truth.objects
            results[name] = detections_to_objects(reading.tracks, calibration, size)
            for error_m, radius_m in _pairs(reading):
                errors.append(error_m)
                radii.append(radius_m)
    judged = evaluate_kitti(labels, results, classes=_CLASSES)
    return {
        "ap": {name: round(judged.ap(name, "3d", "moderate"), 2) for name in _CLASSES},
        "error_m": {
            "median": round(float(np.median(errors)), 3),
            "p90": round(float(np.percentile(errors, 90)), 3),
        },
        "coverage": round(float(np.mean(np.array(errors) <= radii)), 4),
        "radius_m": round(float(np.median(radii)), 3),
        "pairs": len(errors),
    }


def _pairs(reading: Reading) -> Iterator[tuple[float, float]]:
    """Yield distance on the ground and stated radius of each track that a label of its class is near."""
    tracks, truth = reading.tracks, reading.truth
    apart = np.hypot(*(tracks.boxes[:, None, :2] - truth.boxes[None, :, :2]).transpose(2, 0, 1))
    other = np.array(tracks.labels)[:, None] != np.array(truth.labels)[None, :]
    cost = np.where(other | (apart > _SAME_M), 1e6, apart)
    radius_m = tracks.radius_m()
    for track, label in zip(*linear_sum_assignment(cost), strict=True):
        if cost[track, label] <= _SAME_M:
            yield float(apart[track, label]), float(radius_m[track])


if __name__ == "__main__":
    raise SystemExit(main())
