"""Cross-validation by drive on labelled KITTI frames: frames of one drive are never on both sides.

    python -m benchmarks.detector.folds split --data KITTI --out build/folds --folds 5
    perceive train pointpillars-kitti --data build/folds/0 --extra SIM --out build/runs/0 --device cuda
    python -m benchmarks.detector.folds score --data KITTI --runs build/runs/? --footprint Pedestrian=0.8,0.6

``KITTI`` holds ``training/`` and ``drives.txt`` (a line a frame: id, drive, number in the drive, set).
``split`` writes a folder per fold, whose ``val`` holds the drives that its ``train`` leaves out. It also
writes ``development``, with the ``val`` of ``KITTI/ImageSets``; its ``train`` leaves out later frames (set
``new``) of its drives. ``score`` evaluates the detections of all runs together, each on frames that it has
not learned
from: AP, the scores to report from, and maps of scores. ``--footprint`` gives the boxes of a class a length
and a width, as ``nms.footprints_m`` does; The table also shows AP without it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.lib.pictures import reduce_colours
from benchmarks.lib.results import RESULTS, publish, result, write
from perception.data import boxes_from_objects, open_data_set
from perception.data.camera import CameraObject
from perception.data.kitti.data_set import KittiFrame
from perception.data.kitti.files import read_objects
from perception.errors import DataError
from perception.evaluate.boxes.judge import BoxesJudge
from perception.evaluate.calibration import measure_reliability
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.options import JudgeOptions
from perception.evaluate.reports.calibration import plot_reliability
from perception.evaluate.thresholds import choose_thresholds
from perception.io.text import read_text
from perception.types import Detections

#: Weight of a box when folds are balanced; people and bicycles are rare.
_WORTH = {"Car": 1, "Pedestrian": 4, "Cyclist": 4}


class Source(NamedTuple):
    """Origin of a frame.

    Attributes:
        drive: name of the raw drive.
        part: "old" or "new".
    """

    drive: str
    part: str


def sources(data: Path) -> dict[str, Source]:
    """The drive and part of each frame, by ``drives.txt``."""
    path, found = data / "drives.txt", {}
    for number, line in enumerate(read_text(path, "id, drive, frame and set a line").splitlines(), start=1):
        fields = line.split("#")[0].split()
        if fields and len(fields) != 4:
            raise DataError(f"{path}: line {number}: expected id, drive, frame and set, got {line!r}")
        if fields:
            found[fields[0]] = Source(fields[1], fields[3])
    return found


def folds_by_drive(drives: Mapping[str, str], worth: Mapping[str, int], folds: int) -> list[list[str]]:
    """Frames of each fold: drives, the heaviest first, to the lightest fold so far.

    Args:
        drives: of each frame.
        worth: of each frame.
        folds: how many.
    """
    weights: Counter[str] = Counter()
    for frame, drive in drives.items():
        weights[drive] += worth[frame]
    loads = [0] * folds
    owner = {}
    for drive, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        owner[drive] = loads.index(min(loads))
        loads[owner[drive]] += weight
    return [sorted(frame for frame, drive in drives.items() if owner[drive] == fold) for fold in range(folds)]


def split(data: Path, out: Path, folds: int) -> dict[str, tuple[int, int]]:
    """Write the folders; the frames in ``train`` and ``val`` of each, by its name."""
    found = sources(data)
    drives = {frame: source.drive for frame, source in found.items()}
    worth = {
        frame: 1
        + sum(_WORTH.get(item.type, 0) for item in read_objects(data / f"training/label_2/{frame}.txt"))
        for frame in found
    }
    parts = {}
    for fold, held in enumerate(folds_by_drive(drives, worth, folds)):
        parts[str(fold)] = sorted(found.keys() - set(held)), held
    held = sorted(open_data_set(data, "val").frame_ids)
    near = {drives[frame] for frame in held}
    learned = sorted(
        frame
        for frame, source in found.items()
        if frame not in held and (source.part == "old" or source.drive not in near)
    )
    parts["development"] = learned, held
    for name, (train, val) in parts.items():
        _write(out / name, data, train, val)
    return {name: (len(train), len(val)) for name, (train, val) in parts.items()}


def _write(folder: Path, data: Path, train: Iterable[str], val: Iterable[str]) -> None:
    lists = folder / "ImageSets"
    lists.mkdir(parents=True, exist_ok=True)
    for name, frames in (("train", train), ("val", val)):
        (lists / f"{name}.txt").write_text("".join(f"{frame}\n" for frame in frames))
    link = folder / "training"
    link.unlink(missing_ok=True)
    link.symlink_to((data / "training").resolve())


def score(
    data: Path,
    runs: Sequence[Path],
    footprints: Mapping[str, tuple[float, float]],
    picture: Path | None = None,
) -> dict[str, object]:
    """Evaluate the detections in ``val`` of all runs together.

    Args:
        data: KITTI folder.
        runs: finished ones.
        footprints: length and width by class, in place of those found.
        picture: file for a reliability diagram.

    Returns:
        ``frames``; ``AP40`` and ``AP40_as_found`` (without footprints) by class: ``bev`` and ``3d``, easy,
        moderate, hard; ``thresholds`` and ``calibration`` by class, of boxes with footprints.
    """
    found = {path.stem: read_objects(path) for run in runs for path in sorted((run / "val").glob("*.txt"))}
    given = {
        frame: [_with_footprint(item, footprints) for item in objects] for frame, objects in found.items()
    }
    data_set = open_data_set(data, None)
    data_set.frame_ids = sorted(found)
    pairs = []
    for frame in data_set:
        assert isinstance(frame, KittiFrame)
        boxes = boxes_from_objects(given[frame.frame_id], frame.calibration)
        scores = np.array([item.score for item in given[frame.frame_id]], np.float32)
        pairs.append((frame, Detections(boxes.boxes, scores, boxes.labels)))
    judge = BoxesJudge(data_set, JudgeOptions())
    with tempfile.TemporaryDirectory() as folder:
        _, judged = judge.judged(judge.write(Path(folder), pairs))
    rankings = {name: judged[name].rankings["3d"] for name in _WORTH if name in judged}
    reliability = measure_reliability(rankings, len(pairs))
    if picture is not None:
        reduce_colours(plot_reliability(reliability, picture))
    thresholds = choose_thresholds(rankings)
    return {
        "frames": len(found),
        "AP40": _precision(data, given),
        "AP40_as_found": _precision(data, found),
        "thresholds": {name: asdict(choice) for name, choice in thresholds.items()},
        "calibration": {
            name: {key: value for key, value in entry.to_dict().items() if key != "bins"}
            for name, entry in reliability.items()
        },
    }


def _with_footprint(item: CameraObject, footprints: Mapping[str, tuple[float, float]]) -> CameraObject:
    length_m, width_m = footprints.get(item.type, (item.length_m, item.width_m))
    return replace(item, length_m=length_m, width_m=width_m)


def _precision(data: Path, found: Mapping[str, Sequence[CameraObject]]) -> dict[str, dict[str, list[float]]]:
    labels = {frame: read_objects(data / f"training/label_2/{frame}.txt") for frame in sorted(found)}
    evaluated = evaluate_kitti(labels, found)
    return {
        name: {
            metric: [round(evaluated.ap(name, metric, level), 2) for level in ("easy", "moderate", "hard")]
            for metric in ("bev", "3d")
        }
        for name in evaluated.classes
    }


def _footprint(text: str) -> tuple[str, tuple[float, float]]:
    name, equals, sides = text.partition("=")
    try:
        length_m, width_m = map(float, sides.split(","))
    except ValueError:
        equals = ""
    if not equals:
        raise argparse.ArgumentTypeError(f"expected CLASS=LENGTH,WIDTH in metres, got {text!r}")
    return name, (length_m, width_m)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("split", "score"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="where split writes the folders, or score what it prints")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--runs", type=Path, nargs="+", default=[], help="folders of finished runs to score")
    parser.add_argument(
        "--footprint", type=_footprint, action="append", default=[], metavar="CLASS=LENGTH,WIDTH"
    )
    parser.add_argument("--png", type=Path, help="score: draw scores against the share of right boxes")
    parser.add_argument("--publish", action="store_true", help="score: write benchmarks/results/folds.json")
    options = parser.parse_args(arguments)
    if options.what == "split":
        if options.out is None or options.folds < 2:
            parser.error("split needs --out FOLDER and at least 2 folds")
        for name, (train, val) in split(options.data, options.out, options.folds).items():
            print(f"{options.out / name}: {train} frames to train on, {val} held out")
        return 0
    if not options.runs:
        parser.error("score needs --runs FOLDER ...")
    footprints = dict(options.footprint)
    values = result(
        "folds",
        torch.device("cpu"),
        {"folds": len(options.runs), "footprints_m": footprints},
        **score(options.data, options.runs, footprints, options.png),
    )
    if options.out is not None:
        write(values, options.out)
    if options.publish:
        publish(values, RESULTS / "folds.json")
    print(json.dumps(values, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
