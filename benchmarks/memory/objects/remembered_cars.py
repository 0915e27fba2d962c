"""Each car that a memory of a real drive holds, explained: labelled, doubled, unlabelled or nothing.

    python -m benchmarks.memory.objects.remembered_cars

The commands run as a user runs them: ``perceive detect`` or ``perceive track`` with shipped weights and the
poses of the drive, then ``recall import`` and ``recall consolidate``. A remembered car is *labelled* if a
label is within 2 m, and *double* if another memory has that label already. It is *unlabelled* if the points
of a scan fill its box like a car. Otherwise it is *nothing*.
Data: ``$SPARSIGHT_DATA/kitti_sequences``, by default below ``../shared/data``.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.publish.screen import tables
from memory import Memory, MemoryStore
from memory.cli import main as recall
from memory.query import Filter
from memory.questions import Questions
from perception.cli import main as perceive
from perception.data import Frame, open_data_set
from perception.track.poses import moved_boxes

#: Drive, and the largest distance of a memory to its label.
DRIVE, SAME_M = "2011_09_26_drive_0001", 2.0
#: Points of an unlabelled car in one scan, and their extent upwards and sidewards in metres.
LEAST_POINTS, LEAST_HEIGHT_M, LEAST_EXTENT_M = 20, 0.8, 1.2
#: Ways from scans to a memory: the command of ``perceive``, and options of ``recall import``.
WAYS = {
    "detect, a memory per box": ("detect", ["--no-tracks"]),
    "detect, linked by the import": ("detect", []),
    "track": ("track", []),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "remembered_cars", quick="one kind of weights")
    data = data_root()
    parser.add_argument("--data", type=Path, default=data, help="folder of kitti_sequences")
    parser.add_argument("--weights", nargs="+", default=["pointpillars-kitti", "pointpillars-anywhere"])
    options = parse(parser, arguments)
    configure(torch.device("cpu"), 1)
    folder = options.data / "kitti_sequences" / DRIVE
    if not folder.is_dir():
        parser.error(f"--data {options.data}: no kitti_sequences/{DRIVE} in it")
    frames = list(open_data_set(folder))
    labelled = places_of_labels(frames, "Car")
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for weights in options.weights[: 1 if options.quick else None]:
            for command in ("detect", "track"):
                run_perceive(command, folder, weights, Path(scratch) / f"{weights}-{command}")
            for name, (command, how) in WAYS.items():
                store = Path(scratch) / f"{weights}-{name}"
                records = Path(scratch) / f"{weights}-{command}" / "detections.jsonl"
                memories, said = remember(store, records, how)
                cars = explained(memories, labelled, frames)
                found.append({"weights": weights, "way": name, "said": said, "cars": cars, **summed(cars)})
    values = result(
        "remembered_cars",
        torch.device("cpu"),
        {"weights": options.weights, "threads": 1, "drive": DRIVE},
        labelled=len(labelled),
        ways=found,
        notes=["nothing: the memory has no label, and no scan has the points of a car in its box"],
    )
    save(values, options)
    block = tables(values, "remembered-cars", "remembered-cars-each")
    show(values, block, values["notes"], as_json=options.json)
    return 0


def run_perceive(command: str, folder: Path, weights: str, out: Path) -> None:
    """Detect or track the scans of a drive."""
    words = [command, str(folder / "velodyne_reduced"), "--poses", str(folder / "poses.txt")]
    words += [
        "--weights",
        weights,
        "--out",
        str(out),
        "--no-pictures",
        "--start",
        "2011-09-26T12:00:00Z",
        "-q",
    ]
    if perceive(words) != 0:
        raise RuntimeError(f"perceive {' '.join(words)} failed")


def remember(store: Path, records: Path, how: Sequence[str]) -> tuple[list[Memory], str]:
    """Import and consolidate; return the cars and what the memory says of their number."""
    with contextlib.redirect_stdout(io.StringIO()):
        for words in (["import", str(store), str(records), *how, "-q"], ["consolidate", str(store), "-q"]):
            if recall(words) != 0:
                raise RuntimeError(f"recall {' '.join(words)} failed")
    with MemoryStore.open(store, readonly=True) as opened:
        cars = opened.find(Filter(labels=("Car",)), newest_first=False)
        return cars, str(Questions(opened).how_many("car"))


def places_of_labels(frames: Sequence[Frame], label: str) -> dict[int, NDArray[np.float64]]:
    """Return the median place of each labelled track, (2,) metres in the map."""
    seen: dict[int, list[NDArray[np.float64]]] = {}
    for frame in frames:
        assert frame.track_ids is not None
        assert frame.pose is not None
        boxes = moved_boxes(np.asarray(frame.boxes, np.float64), frame.pose)
        for key, name, box in zip(frame.track_ids.tolist(), frame.labels, boxes, strict=True):
            if name == label:
                seen.setdefault(key, []).append(box[:2])
    return {key: np.median(np.array(places), axis=0) for key, places in seen.items()}


def explained(
    memories: Sequence[Memory], labelled: dict[int, NDArray[np.float64]], frames: Sequence[Frame]
) -> list[dict[str, Any]]:
    """Return each remembered car with what it is; the one with the most observations has the label."""
    taken: set[int] = set()
    rows = []
    for memory in sorted(memories, key=lambda each: -each.count):
        place = np.array(memory.place[:2])
        apart = {key: float(np.hypot(*(place - at))) for key, at in labelled.items()}
        key = min(apart, key=apart.__getitem__)
        points = {"points": 0, "height_m": 0.0, "extent_m": 0.0}
        if apart[key] <= SAME_M:
            what = "double" if key in taken else "labelled"
            taken.add(key)
        else:
            points = best_points(memory, frames)
            filled = points["points"] >= LEAST_POINTS and points["extent_m"] >= LEAST_EXTENT_M
            what = "unlabelled" if filled and points["height_m"] >= LEAST_HEIGHT_M else "nothing"
        rows.append(
            {
                "what": what,
                "label": key if apart[key] <= SAME_M else None,
                "apart_m": round(apart[key], 2) if apart[key] <= SAME_M else None,
                "place": [round(float(one), 1) for one in place],
                "kind": "parked" if memory.kind == "object" else "moving",
                "count": int(memory.count),
                "confidence": round(memory.confidence, 2),
                "height_m": memory.payload["size_m"][2],
                **{f"box_{name}": value for name, value in points.items()},
            }
        )
    return rows


def best_points(memory: Memory, frames: Sequence[Frame]) -> dict[str, Any]:
    """Return the points in the box of a memory in the scan with the most: number, height and largest side."""
    length, width, height = memory.payload["size_m"]
    cosine, sine = np.cos(memory.yaw), np.sin(memory.yaw)
    best = np.zeros((0, 3))
    for frame in frames:
        assert frame.pose is not None
        points = frame.cloud.points[:, :3].astype(np.float64) @ frame.pose[:3, :3].T + frame.pose[:3, 3]
        away = points - np.array(memory.place)
        inside = np.column_stack(
            [away[:, 0] * cosine + away[:, 1] * sine, away[:, 1] * cosine - away[:, 0] * sine, away[:, 2]]
        )
        # A little more to the sides, and less below, where the ground is.
        within = (np.abs(inside[:, :2]) <= np.array([length, width]) / 2.0 + 0.2).all(axis=1)
        within &= (inside[:, 2] > -height / 2.0 + 0.2) & (inside[:, 2] < height / 2.0 + 0.2)
        if within.sum() > len(best):
            best = inside[within]
    if not len(best):
        return {"points": 0, "height_m": 0.0, "extent_m": 0.0}
    extent = np.ptp(best, axis=0)
    return {
        "points": len(best),
        "height_m": round(float(extent[2]), 2),
        "extent_m": round(float(extent[:2].max()), 2),
    }


def summed(cars: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Count the remembered cars by what they are."""
    counts = Counter(car["what"] for car in cars)
    return {"remembered": len(cars)} | {
        what: counts[what] for what in ("labelled", "double", "unlabelled", "nothing")
    }


if __name__ == "__main__":
    raise SystemExit(main())
