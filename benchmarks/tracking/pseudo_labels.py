"""Pseudo-labels of labelled drives: precision and recall without and with a memory.

    python -m benchmarks.tracking.pseudo_labels --drive DRIVE=WEIGHTS ... [--publish]

``DRIVE`` is a data set with labels and poses, ``WEIGHTS`` a detector that has not seen it. Each drive is
labelled as a whole, with the memory of the same drive, and in visits of ``--visit`` scans, each with a memory
of the other visits. The memory is what ``perceive track --mode global`` and ``recall import`` would make of
the same detections. A label is right if it overlaps an object of its class on the ground: IoU of cars 0.5, of
others 0.3. Labels and objects outside the labelled view or the detector's range do not count, and neither do
labels on an object that resembles the class.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show, table
from memory import Memory
from memory.tracks import Sights, TrackMemories
from perception.boxes import rotated_iou_bev
from perception.data import DataSet, Frame, open_data_set
from perception.detector import Detector
from perception.track.recording import Moment, track_recording
from perception.train.data.evidence import BoolArray, KnownObjects, ScanDetections
from perception.train.data.pseudo import PseudoLabelling, choose_labels
from perception.types import Detections
from sparse_core.common.table import Table

_CLASSES = ("Car", "Pedestrian", "Cyclist")
_IOU = {"Car": 0.5}
_OTHER_IOU = 0.3
_NEAR_SHIPPED = 0.3
_NOTHING = KnownObjects.of([])


class Drive(NamedTuple):
    """A labelled drive.

    Attributes:
        name: of its folder.
        data_set: its labels.
        scans: detections of each frame, faint ones too.
        thresholds: least scores by class that the detector reports, and that tracks see.
        reach_m: x and y minimum, x and y maximum of the detector's range.
    """

    name: str
    data_set: DataSet
    scans: list[ScanDetections]
    thresholds: dict[str, float]
    reach_m: np.ndarray


def read_drive(folder: Path, weights: str, settings: PseudoLabelling) -> Drive:
    """Detect in all scans of a drive."""
    data_set, detector = open_data_set(folder), Detector.from_pretrained(weights)
    everything = detector.reporting_everything()
    scans = []
    for number, frame in enumerate(data_set):
        found = everything(frame.cloud)
        time_s = number * settings.frame_s if frame.time_ns is None else frame.time_ns / 1e9
        scans.append(ScanDetections(found[found.scores >= settings.faint], frame.pose, time_s))
    reach = np.array(detector.config.pillars.range_m)[[0, 1, 3, 4]]
    return Drive(folder.name, data_set, scans, dict(detector.config.nms.report_thresholds), reach)


def memory_of(scans: Sequence[ScanDetections], thresholds: Mapping[str, float]) -> KnownObjects:
    """Return what a memory would know after a drive, from the detections that are reported."""
    scans = [replace(scan, detections=scan.detections[_from(scan.detections, thresholds)]) for scan in scans]
    moments = (Moment(scan.detections, scan.pose, round(scan.time_s * 1e9)) for scan in scans)
    memories, found = TrackMemories("drive"), list[Memory]()
    for scan, tracks in zip(scans, track_recording(moments, mode="global"), strict=True):
        seen = tracks[tracks.row >= 0]
        if len(seen):
            sights = Sights(
                time_ns=round(scan.time_s * 1e9),
                track_id=seen.track_id,
                boxes=seen.map_boxes,
                labels=seen.labels,
                scores=seen.scores,
            )
            found += memories.see(sights)
    objects = [memory for memory in [*found, *memories.end()] if memory.kind == "object"]
    return KnownObjects.of(
        [
            {
                "label": memory.label,
                "position": memory.place,
                "confidence": memory.confidence,
                "sights": memory.count,
                "state": memory.state,
                "last_ns": memory.last_sight_ns,
            }
            for memory in objects
        ]
    )


def _from(found: Detections, thresholds: Mapping[str, float]) -> BoolArray:
    least = np.array([thresholds.get(label, 0.0) for label in found.labels])
    reported: BoolArray = found.scores >= least
    return reported


def in_visits(
    scans: list[ScanDetections],
    length: int,
    label: Callable[[list[ScanDetections], list[ScanDetections]], list[BoolArray]],
) -> list[BoolArray]:
    """Label visits of some scans; ``label`` gets a visit and all other scans."""
    starts = range(0, len(scans), length)
    return [
        sure
        for start in starts
        for sure in label(scans[start : start + length], scans[:start] + scans[start + length :])
    ]


def judge(drive: Drive, chosen: Iterable[BoolArray]) -> dict[str, Counter[str]]:
    """Count labels, right ones, objects and those found, by class."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in _CLASSES}
    for frame, scan, sure in zip(drive.data_set, drive.scans, chosen, strict=True):
        found = scan.detections[sure]
        boxes, labels = _counted(drive, frame, found.boxes, found.labels)
        truth, names = _counted(drive, frame, frame.boxes, frame.labels)
        order = np.argsort(-found.scores[_inside(drive, frame, found.boxes)], kind="stable")
        for name in _CLASSES:
            similar = drive.data_set.neighbours.get(name)
            own = [row for row in order if labels[row] == name]
            _match(
                counts[name],
                boxes[own],
                truth[names == name],
                truth[names == similar],
                _IOU.get(name, _OTHER_IOU),
            )
    return counts


def _match(
    counts: Counter[str], boxes: np.ndarray, truth: np.ndarray, similar: np.ndarray, least: float
) -> None:
    """Match labels, best first, with objects of a class; those on similar objects do not count."""
    counts["objects"] += len(truth)
    free = np.ones(len(truth), np.bool_)
    over, beside = _overlaps(boxes, truth), _overlaps(boxes, similar)
    for row in range(len(boxes)):
        overlap = np.where(free, over[row], 0.0)
        if overlap.max(initial=0.0) >= least:
            free[int(overlap.argmax())] = False
            counts.update(["labels", "right"])
        elif beside[row].max(initial=0.0) < least:
            counts.update(["labels"])
    counts["found"] += int((~free).sum())


def _overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if not len(first) or not len(second):
        return np.zeros((len(first), len(second)))
    return np.asarray(rotated_iou_bev(first, second))


def _inside(drive: Drive, frame: Frame, boxes: np.ndarray) -> BoolArray:
    low, high = drive.reach_m[:2], drive.reach_m[2:]
    inside = np.asarray(((boxes[:, :2] > low) & (boxes[:, :2] < high)).all(axis=1))
    covered = frame.covered(boxes)
    return inside if covered is None else inside & covered


def _counted(
    drive: Drive, frame: Frame, boxes: np.ndarray, labels: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    inside = _inside(drive, frame, boxes)
    return boxes[inside], np.array(labels, dtype=object)[inside]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "pseudo-labels", by_device=False)
    parser.add_argument("--drive", action="append", required=True, metavar="FOLDER=WEIGHTS")
    parser.add_argument("--visit", type=int, default=8, help="scans of a visit (default: 8)")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), options.threads)
    settings, cases = PseudoLabelling(), dict[str, Any]()
    for pair in options.drive:
        folder, weights = pair.split("=", 1)
        drive = read_drive(Path(folder), weights, settings)
        cases[drive.name] = {"frames": len(drive.scans), **_judged(drive, settings, options.visit)}
    values = result("pseudo-labels", torch.device("cpu"), asked(options, "drive"), cases=cases)
    save(values, options)
    show(values, [_table(values)], [], as_json=options.json)
    return 0


def _judged(drive: Drive, settings: PseudoLabelling, visit: int) -> dict[str, dict[str, dict[str, int]]]:
    # Weights without thresholds label from a score near those of the shipped weights.
    least = drive.thresholds or dict.fromkeys(_CLASSES, _NEAR_SHIPPED)

    def choose(scans: list[ScanDetections], known: KnownObjects | None) -> list[BoolArray]:
        return choose_labels(scans, settings, least, known=known)

    def remember(scans: list[ScanDetections]) -> KnownObjects:
        return memory_of(scans, drive.thresholds)

    whole = remember(drive.scans)
    ways = {
        "without": choose(drive.scans, None),
        "tracks": choose(drive.scans, _NOTHING),
        "memory": choose(drive.scans, whole),
        "visits, without": in_visits(drive.scans, visit, lambda own, _: choose(own, None)),
        "visits, tracks": in_visits(drive.scans, visit, lambda own, _: choose(own, _NOTHING)),
        "visits, memory": in_visits(drive.scans, visit, lambda own, others: choose(own, remember(others))),
    }
    return {
        way: {
            name: dict(counts)
            for name, counts in judge(drive, chosen).items()
            if counts["objects"] or counts["labels"]
        }
        for way, chosen in ways.items()
    }


def _table(values: dict[str, Any]) -> Table:
    rows = []
    for drive, ways in values["cases"].items():
        for way in list(ways)[1:]:
            for name, counts in ways[way].items():
                labels, objects = counts.get("labels", 0), counts.get("objects", 0)
                right, found = counts.get("right", 0), counts.get("found", 0)
                shares = [
                    f"{right / labels:.3f}" if labels else "-",
                    f"{found / objects:.3f}" if objects else "-",
                ]
                rows.append([drive, way, name, str(labels), str(objects), *shares])
    return table(
        "Pseudo-labels without and with a memory",
        ["drive", "way", "class", "labels", "objects", "precision", "recall"],
        rows,
    )


if __name__ == "__main__":
    sys.exit(main())
