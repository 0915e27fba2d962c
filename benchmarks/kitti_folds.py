"""Cross-validation by drive on labelled KITTI frames: frames of one drive are never on both sides.

    python -m benchmarks.kitti_folds split --data KITTI --out build/folds --folds 5
    perceive train pointpillars-kitti --data build/folds/0 --extra SIM --out build/runs/0 --device cuda
    python -m benchmarks.kitti_folds score --data KITTI --runs build/runs/?

``KITTI`` holds ``training/`` and ``drives.txt`` (a line a frame: id, drive, number in the drive, set).
``split`` makes a folder a fold, whose ``val`` has the drives that its ``train`` has not; and ``development``,
whose ``val`` is that of ``KITTI/ImageSets`` and whose ``train`` leaves out later frames (set ``new``) of the
drives in it. ``score`` evaluates the detections of all runs together, each on frames that it has not learned
from.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perception.data import open_data_set
from perception.data.kitti.files import read_objects
from perception.errors import DataError
from perception.evaluate.kitti import evaluate_kitti
from perception.io.text import read_text

#: How much a box counts where folds are made equal: people and bicycles are few.
_WORTH = {"Car": 1, "Pedestrian": 4, "Cyclist": 4}


class Source(NamedTuple):
    """Where a frame is from.

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


def score(data: Path, runs: Sequence[Path]) -> dict[str, object]:
    """AP of the detections in ``val`` of all runs together."""
    detections = {
        path.stem: read_objects(path) for run in runs for path in sorted((run / "val").glob("*.txt"))
    }
    labels = {frame: read_objects(data / f"training/label_2/{frame}.txt") for frame in sorted(detections)}
    result = evaluate_kitti(labels, detections)
    return {"frames": len(labels), **result.to_dict()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("split", "score"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="where split writes the folders")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--runs", type=Path, nargs="+", default=[], help="folders of finished runs to score")
    options = parser.parse_args(arguments)
    if options.what == "split":
        if options.out is None or options.folds < 2:
            parser.error("split needs --out FOLDER and at least 2 folds")
        for name, (train, val) in split(options.data, options.out, options.folds).items():
            print(f"{options.out / name}: {train} frames to train on, {val} held out")
        return 0
    if not options.runs:
        parser.error("score needs --runs FOLDER ...")
    print(json.dumps(score(options.data, options.runs), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
