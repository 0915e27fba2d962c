"""Description of a folder, and the files that contain it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perception.data import DataSet
from perception.data.dair_v2x import DairV2xSide
from perception.data.own import DESCRIPTION_NAME, Description, LabelPart, OwnDataSet, ScanPart
from perception.data.own.labels import Array
from perception.data.own.written_description import description_text
from perception.describe.evidence import Evidence
from perception.describe.files import FolderScans, FoundLabels, find_labels, find_lists, find_scans, relative
from perception.describe.labels import ClassFacts, MeasuredLabels, measure_written
from perception.describe.scans import MeasuredScans, measure_scans
from perception.describe.splits import in_time, split_frames, write_lists
from perception.describe.training import suggested_range_m, suggested_shrink, training_text
from perception.errors import DataError
from perception.io.point_cloud import read_raw_cloud
from perception.io.raw import apply_transform
from perception.io.text import write_text
from perception.scans.facts import measure_scan
from perception.scans.tensors import raised_by_m

TRAINING_NAME = "train.yaml"
_SPLITS = "splits"
#: Number of scans to measure.
_SAMPLE = 20
#: Number of scans to measure with their labels, which takes longer.
_LABELLED_SAMPLE = 10
#: If so many boxes leave so wide an angle free, only a part of the turn is labelled.
_SECTOR_BOXES, _SECTOR_GAP_DEG = 50, 150.0


@dataclass(frozen=True)
class FolderDescription:
    """Description of a folder, with evidence.

    Attributes:
        folder: the folder.
        description: content of ``dataset.yaml``; None for a folder of a known kind, which needs none.
        evidence: origin of each value.
        scans: number of scans.
        classes: boxes by name in the labels.
        lists: frames of each split to write; empty if lists exist.
        range_m: range that contains the boxes.
        training: text of ``train.yaml``; None without boxes.
        remarks: further messages for the user.
    """

    folder: Path
    description: Description | None
    evidence: tuple[Evidence, ...]
    scans: int
    classes: dict[str, ClassFacts]
    lists: dict[str, list[str]]
    range_m: tuple[float, ...]
    training: str | None
    remarks: tuple[str, ...]

    @property
    def text(self) -> str | None:
        """Text of ``dataset.yaml``, if any."""
        if self.description is None:
            return None
        reasons = {item.field: f"{item.sure}: {item.how}" for item in self.evidence}
        return description_text(self.description, reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "folder": str(self.folder),
            "scans": self.scans,
            "found": [item._asdict() for item in self.evidence],
            "classes": {name: asdict(facts) for name, facts in self.classes.items()},
            "splits": {name: len(listed) for name, listed in self.lists.items()},
            "range_m": list(self.range_m),
            "remarks": list(self.remarks),
        }


def describe_folder(
    folder: str | Path, *, val_share: float = 0.2, seed: int = 0, labels: bool = True
) -> FolderDescription:
    """Describe an own folder without writing files.

    Args:
        folder: folder of scans, labels and lists of frames, also in subfolders.
        val_share: fraction of frames for validation, if there are no lists.
        seed: seed of the validation split.
        labels: False describes only the scans.

    Raises:
        DataError: there are no scans, most scans or labels are unreadable, or labels have an unknown format,
            no box, or other names than the scans.
        ValueError: ``val_share`` is not between 0 and 1.
    """
    if not 0 < val_share < 1:
        raise ValueError(f"val_share must be between 0 and 1, got {val_share}")
    root = Path(folder)
    dair_v2x = DairV2xSide(root, None, "scan", None) if labels and DairV2xSide.recognises(root) else None
    scans = find_scans(root)
    sample = _spread_over(scans.paths)
    measured = measure_scans(sample)
    path = Evidence("scans.path", relative(scans.folder, root), f"{len(scans.paths)} scans", "measured")
    description = Description(_scan_part(path.value, measured))
    remarks = _scan_remarks(scans, measured)
    found = find_labels(root, scans) if labels else None
    reach, around = _reach(sample, measured)
    if found is None:
        remarks.append("no labels found: only the scans are described. Add labels to train.")
        bounds = suggested_range_m(np.zeros((0, 7)), reach, behind=around)
        evidence = (path, *measured.evidence)
        return FolderDescription(
            root, description, evidence, len(scans.paths), {}, {}, bounds, None, tuple(remarks)
        )
    label_part, label_evidence = _label_part(root, scans, found)
    description = replace(description, labels=label_part)
    data_set = OwnDataSet(root, None, "scan or labels", None, description=description)
    labelled = [path for path in scans.paths if path.stem in _labelled(found)]
    written = measure_written(data_set, [path.stem for path in _spread_over(labelled, _LABELLED_SAMPLE)])
    if not written.facts:
        raise DataError(f"{found.path}: the labels contain no box. Export them again, or add --no-labels.")
    remarks += _label_remarks(written, around)
    description = replace(description, labels=written.part, classes=written.classes)
    lists, listed = _lists(
        root, scans, found, written, data_set if dair_v2x is None else dair_v2x, val_share, seed
    )
    if dair_v2x is not None:
        return _of_known(dair_v2x, measured, written, lists, listed, reach)
    description = replace(description, splits=listed.value)
    shrink = suggested_shrink(written.boxes, [name for names in written.per_frame.values() for name in names])
    raised_m = raised_by_m(measured.transform.sensor_height_m, shrink)
    bounds = suggested_range_m(written.boxes, reach, behind=around, raised_m=raised_m, shrink=shrink)
    described = OwnDataSet(root, None, "scan or labels", None, description=description)
    # Without new lists, the folder has its own.
    frames = len(lists.get("train") or (scans.paths if lists else described.split_ids("train")))
    training = training_text(
        description.class_names,
        bounds,
        frames,
        shrink=shrink,
        headings=written.part.headings,
        intensity=_known_intensity(measured),
    )
    return FolderDescription(
        root,
        description,
        (path, *measured.evidence, *label_evidence, *written.evidence, listed),
        len(scans.paths),
        written.facts,
        lists,
        bounds,
        training,
        tuple(remarks),
    )


def _scan_part(path: str, measured: MeasuredScans) -> ScanPart:
    transform = measured.transform
    return ScanPart(
        path,
        (measured.columns and tuple(measured.evidence[0].value)) or None,
        transform.scale,
        transform.axes or "x,y,z",
        transform.intensity_scale,
        transform.sensor_height_m,
    )


def _of_known(
    data_set: DairV2xSide,
    measured: MeasuredScans,
    written: MeasuredLabels,
    lists: dict[str, list[str]],
    listed: Evidence,
    reach_m: float,
) -> FolderDescription:
    """Describe a folder whose layout tells everything but lists and the training."""
    names = sorted(written.facts, key=lambda name: -written.facts[name].boxes)
    height_m = data_set[0].transform.sensor_height_m
    raised_m = raised_by_m(height_m)
    # Cameras look ahead, and training crops scans to their view.
    bounds = suggested_range_m(written.boxes, reach_m, behind=False, raised_m=raised_m)
    kind = Evidence("kind", data_set.kind, f"the folder contains {data_set.layout}", "measured")
    remarks = [f"{count} label entries were skipped: {why}" for why, count in written.skipped.items()]
    return FolderDescription(
        data_set.folder,
        None,
        (kind, listed),
        len(data_set),
        written.facts,
        lists,
        bounds,
        training_text(names, bounds, len(lists.get("train", data_set.frame_ids))),
        (*remarks, *(f"unreadable scan: {message}" for message in measured.unreadable[:5])),
    )


def write_files(described: FolderDescription, *, force: bool = False) -> list[Path]:
    """Write ``dataset.yaml``, lists of frames and ``train.yaml``; return the written files.

    Raises:
        DataError: a file exists, and ``force`` is False.
    """
    root = described.folder
    texts = {} if described.text is None else {root / DESCRIPTION_NAME: described.text}
    if described.training is not None:
        texts[root / TRAINING_NAME] = described.training
    folder = root / _SPLITS
    lists = [folder / f"{split}.txt" for split in described.lists]
    there = [path for path in (*texts, *lists) if path.exists()]
    if there and not force:
        raise DataError(f"{there[0]} exists. Add --force to replace it (force=True in Python).")
    for path, text in texts.items():
        write_text(path, text)
    return [*texts, *(write_lists(folder, described.lists) if lists else ())]


def _spread_over(paths: tuple[Path, ...] | list[Path], most: int = _SAMPLE) -> list[Path]:
    """Return evenly spread scans."""
    places = np.linspace(0, len(paths) - 1, min(len(paths), most)).round().astype(int)
    return [paths[place] for place in dict.fromkeys(places.tolist())]


def _labelled(found: FoundLabels) -> set[str]:
    return set(found.kind(found.path).frame_ids())


def _known_intensity(measured: MeasuredScans) -> bool:
    return all(item.sure != "assumed" for item in measured.evidence if item.field == "scans.intensity_scale")


def _label_part(root: Path, scans: FolderScans, found: FoundLabels) -> tuple[LabelPart, list[Evidence]]:
    where = relative(found.path, root)
    how = f"{found.shared} of {len(scans.paths)} scans have labels"
    evidence = [Evidence("labels.path", where, how, "measured")]
    evidence.append(
        Evidence("labels.format", found.kind.name, f"recognised as {found.kind.tool}", "measured")
    )
    return LabelPart(where, found.kind.name), evidence


def _label_remarks(written: MeasuredLabels, around: bool) -> list[str]:
    """Return messages about skipped labels, and labels that cover only a part of the scan."""
    remarks = []
    if written.unreadable:
        files = len(written.per_frame) + len(written.unreadable)
        remarks.append(
            f"{len(written.unreadable)} of {files} label files are unreadable and left out of the lists of"
            f" frames: {'; '.join(written.unreadable[:5])}"
        )
    remarks += [f"{count} label entries were skipped: {why}" for why, count in written.skipped.items()]
    sector = _labelled_sector(written.boxes)
    if around and sector is not None:
        remarks.append(
            f"points lie all around, but labels only from {sector[0]:.0f} to {sector[1]:.0f} degrees (0 is"
            " +x, counter-clockwise). Label all directions, or crop the scans: detections elsewhere count as"
            " false."
        )
    return remarks


def _labelled_sector(boxes: Array) -> tuple[float, float] | None:
    """Return the bearings in degrees that enclose all boxes; None for few boxes, or boxes all around."""
    if len(boxes) < _SECTOR_BOXES:
        return None
    bearings = np.sort(np.degrees(np.arctan2(boxes[:, 1], boxes[:, 0])))
    gaps = np.diff(bearings, append=bearings[0] + 360)
    widest = int(gaps.argmax())
    if gaps[widest] < _SECTOR_GAP_DEG:
        return None
    first = float(bearings[(widest + 1) % len(bearings)])
    last = float(bearings[widest])
    return first, last if last >= first else last + 360


def _scan_remarks(scans: FolderScans, measured: MeasuredScans) -> list[str]:
    remarks = [f"{finding.message} {finding.fix}" for finding in measured.problems]
    remarks += [f"unreadable scan: {message}" for message in measured.unreadable[:5]]
    if scans.others:
        others = ", ".join(map(str, scans.others[:5]))
        remarks.append(f"further folders of scans are not described: {others}. Run perceive init on each.")
    return remarks


def _reach(paths: list[Path], measured: MeasuredScans) -> tuple[float, bool]:
    """Return the distance in metres of most points, and True if they lie all around."""
    reaches, behind = [], []
    for path in paths:
        try:
            raw = apply_transform(read_raw_cloud(path, columns=measured.columns), measured.transform)
        except DataError:
            continue
        facts = measure_scan("", raw, count_repeated=False)
        reaches.append(facts.range_99)
        behind.append(facts.low[0] < -0.1 * facts.range_99)
    return max(reaches), bool(np.mean(behind) > 0.5)


def _lists(
    root: Path,
    scans: FolderScans,
    found: FoundLabels,
    written: MeasuredLabels,
    data_set: DataSet,
    share: float,
    seed: int,
) -> tuple[dict[str, list[str]], Evidence]:
    field, there = "splits", find_lists(root)
    if there is not None:
        how = "existing lists of frames"
        return {}, Evidence(field, relative(there, root), how, "measured")
    both = [path.stem for path in scans.paths if path.stem in written.per_frame]
    times = {name: data_set.frame(name).time_ns for name in both}
    known = {name: time for name, time in times.items() if time is not None}
    frames = in_time(both, known)
    split = split_frames(frames, written.per_frame, share=share, seed=seed)
    order = "times" if len(known) == len(frames) else "names"
    how = (
        f"{len(split.train)} frames for training and {len(split.val)} for validation, in {split.blocks}"
        f" blocks by {order}, so that neighbouring frames stay together; seed {seed}"
    )
    return {"train": split.train, "val": split.val}, Evidence(field, _SPLITS, how, "likely")
