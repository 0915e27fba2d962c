"""Reading of a data set, frame by frame, for the checks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perception.checkpoints.weights import load_weights
from perception.config import PillarConfig
from perception.data import CameraCalibration, DataSet, Frame, open_data_set
from perception.data.own import OwnDataSet
from perception.data.own.labels import EMPTY_CLASS
from perception.data.types import SEPARATE_SPLITS
from perception.doctor.check_classes import check_trained_classes
from perception.doctor.check_labels import check_labels
from perception.doctor.check_missing import check_missing
from perception.doctor.check_range import check_range
from perception.doctor.check_scans import PLACEMENT_CHECKS, check_scans
from perception.doctor.label_facts import Array, LabelFacts, measure_labels, points_by_class
from perception.doctor.report import DoctorReport, NumberRange, Statistics, sorted_findings
from perception.doctor.wording import in_description, words_for
from perception.errors import DataError
from perception.io.columns import Columns, parse_columns
from perception.io.transform import ScanTransform
from perception.scans.facts import ScanFacts, finite_xyz, measure_scan
from perception.scans.finding import Finding, with_frames


def fingerprint(xyz: npt.NDArray[np.float32]) -> bytes:
    """Return a hash of the points in order."""
    return hashlib.blake2b(np.ascontiguousarray(xyz).tobytes(), digest_size=16).digest()


def check_repeated_scans(prints: Mapping[str, bytes], lists: Mapping[str, Iterable[str]]) -> list[Finding]:
    """Find frames with the scan of another frame, by fingerprints of scans and frames of splits."""
    same: dict[bytes, list[str]] = {}
    for frame_id, value in prints.items():
        same.setdefault(value, []).append(frame_id)
    groups = [ids for ids in same.values() if len(ids) > 1]
    member = {frame_id: split for split in SEPARATE_SPLITS if split in lists for frame_id in lists[split]}
    leaking = [ids for ids in groups if len({member[name] for name in ids if name in member}) > 1]
    others = [ids for ids in groups if ids not in leaking]
    return with_frames(
        Finding(
            "error",
            "splits",
            f"{len(leaking)} scans are in two splits under different names, so training data is tested.",
            "Remove the copies from one of the splits.",
            tuple(name for ids in leaking for name in ids),
        ),
        Finding(
            "warning",
            "duplicates",
            f"{sum(map(len, others))} frames hold only {len(others)} different scans.",
            "Check whether scans were exported twice, and keep one copy of each.",
            tuple(name for ids in others for name in ids),
        ),
    )


#: Classes of the shipped detector.
DEFAULT_CLASSES = ("Car", "Pedestrian", "Cyclist")

_SHOWN_FILES = 10


@dataclass
class _Survey:
    """Measurements so far; only samples of points are stored."""

    columns: Columns | None
    transform: ScanTransform
    sensor_height_m: float | None = None
    scans: list[ScanFacts] = field(default_factory=list)
    labels: list[LabelFacts] = field(default_factory=list)
    calibrations: list[tuple[str, CameraCalibration]] = field(default_factory=list)
    unreadable: list[tuple[str, DataError]] = field(default_factory=list)
    prints: dict[str, bytes] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def record_errors(self, frame: Frame) -> Iterator[None]:
        """Record an unreadable file of the frame and continue."""
        try:
            yield
        except DataError as error:
            self.unreadable.append((frame.frame_id, error))


def examine_data_set(
    root: str | Path,
    *,
    classes: Sequence[str] | None = None,
    pillars: PillarConfig | None = None,
    headings: bool | None = None,
    weights: str | Path | None = None,
    columns: Columns | None = None,
    transform: ScanTransform | None = None,
    max_frames: int | None = None,
    on_frame: Callable[[int, int], None] | None = None,
) -> DoctorReport:
    """Check a data set before training or detection.

    Unreadable files become findings. If units or axes of the scans are wrong, positions of labels are not
    checked: fix the errors and run again.

    Args:
        root: a data set for :func:`~perception.data.open_data_set`, or a folder of scans.
        classes: classes to train or detect; None means those of the shipped detector for KITTI data, else all
            of the data set.
        pillars: range of the detector; None skips the check of ranges.
        headings: ``head.headings`` of the training, if known.
        weights: shipped name or file to fine-tune; None skips the check of its class names.
        columns, transform: as for :func:`~perception.io.load_point_cloud`, applied after those of the data
            set.
        max_frames: number of frames to check, spread evenly; None means all.
        on_frame: called with the number of finished frames, and of all frames.

    Raises:
        DataError: the folder does not exist or is not a data set.
        CheckpointError: the weights do not exist.
        ValueError, TypeError: ``max_frames`` is below 1, or ``columns`` is invalid.
    """
    if max_frames is not None and max_frames < 1:
        raise ValueError(f"max_frames must be at least 1, got {max_frames}")
    names = None if columns is None else parse_columns(columns)
    data_set = open_data_set(root, having="scan or labels")
    frame_ids = data_set.frame_ids
    if max_frames is not None and max_frames < len(frame_ids):
        places = np.linspace(0, len(frame_ids) - 1, max_frames).round().astype(int)
        frame_ids = [frame_ids[place] for place in places]
    survey = _Survey(names, transform or ScanTransform())
    for done, frame_id in enumerate(frame_ids, 1):
        _survey_frame(data_set.frame(frame_id), survey)
        if on_frame is not None:
            on_frame(done, len(frame_ids))
    findings = data_set.check_files() + _unreadable_findings(survey.unreadable)
    findings += _skipped_findings(survey.skipped)
    if len(frame_ids) < len(data_set):
        what = f"{len(frame_ids)} of {len(data_set)} frames were checked."
        findings.append(Finding("info", "sample", what, "Leave out --max-frames to check all."))
    if classes is None:
        others = data_set.evaluation not in (None, "kitti")
        classes = data_set.classes if others else DEFAULT_CLASSES
    findings += _judge(survey, classes, data_set, pillars) if frame_ids else []
    findings += check_missing(data_set, survey.scans, survey.labels, headings)
    if weights is not None:
        named = classes or tuple(dict.fromkeys(name for frame in survey.labels for name in frame.types))
        findings += check_trained_classes(named, load_weights(weights).config.head.classes, str(weights))
    if isinstance(data_set, OwnDataSet):
        findings = [in_description(item, data_set.description.scans.transform) for item in findings]
    found = sorted_findings(findings)
    return DoctorReport(str(root), found, _statistics(survey), survey.transform)


def _survey_frame(frame: Frame, survey: _Survey) -> None:
    """Measure scan and labels of one frame; a damaged file is recorded."""
    xyz: Array = np.zeros((0, 3))
    if frame.source is not None:
        with survey.record_errors(frame):
            raw, survey.sensor_height_m = frame.stored(survey.columns, survey.transform)
            if len(raw.xyz):
                survey.prints[frame.frame_id] = fingerprint(raw.xyz)
            survey.scans.append(measure_scan(frame.frame_id, raw))
            xyz = finite_xyz(raw)
    placed = False
    if frame.calibrated:
        with survey.record_errors(frame):
            survey.calibrations.append((frame.frame_id, frame.calibration))
            placed = True
    if frame.labelled:
        survey.skipped += [(why, frame.frame_id) for why in frame.skipped]
        with survey.record_errors(frame):
            survey.labels.append(measure_labels(frame, xyz if placed or not frame.objects else xyz[:0]))


def _unreadable_findings(unreadable: Sequence[tuple[str, DataError]]) -> list[Finding]:
    shown, rest = unreadable[:_SHOWN_FILES], unreadable[_SHOWN_FILES:]
    rows: list[tuple[str, tuple[str, ...]]] = [(str(error), (name,)) for name, error in shown]
    rows.append((f"{len(rest)} more files are unreadable.", tuple(frame_id for frame_id, _ in rest)))
    fix = "Repair or replace the file, or remove the frame from the data set."
    return with_frames(*(Finding("error", "unreadable", message, fix, ids) for message, ids in rows))


def _skipped_findings(skipped: Sequence[tuple[str, str]]) -> list[Finding]:
    findings = []
    for why, count in Counter(why for why, _ in skipped).items():
        message = f"{count} label entries were skipped: {why}."
        frames = tuple(dict.fromkeys(name for other, name in skipped if other == why))
        if why == EMPTY_CLASS:
            fix = "Write the class of these labels, or delete them."
            findings.append(Finding("warning", "skipped", message, fix, frames))
        else:
            fix = "Nothing to do if you do not need them."
            findings.append(Finding("info", "skipped", message, fix, frames))
    return findings


def _judge(
    survey: _Survey, classes: Sequence[str], data_set: DataSet, pillars: PillarConfig | None
) -> list[Finding]:
    height_m = survey.sensor_height_m
    findings = check_scans(survey.scans, sensor_height_m=height_m)
    lists = {split: data_set.split_ids(split) for split in data_set.splits}
    findings += check_repeated_scans(survey.prints, lists)
    astray = any(item.severity == "error" and item.check in PLACEMENT_CHECKS for item in findings)
    calibration = _calibration_findings(survey.calibrations)
    known = data_set.classes
    words = words_for(data_set)
    labels = []
    if survey.labels:
        labels = check_labels(survey.labels, classes, known, judge_place=not astray, words=words)
    if pillars is not None and not astray:
        labels += check_range(survey.scans, survey.labels, pillars, sensor_height_m=height_m)
    if any(item.check == "units" for item in labels):
        # The ground was measured in the wrong unit.
        findings = [item for item in findings if item.check != "ground"]
    return findings + labels + calibration


def _calibration_findings(calibrations: Sequence[tuple[str, CameraCalibration]]) -> list[Finding]:
    """Check that the camera looks along the LiDAR's x axis, as labels assume."""
    ids = tuple(name for name, calibration in calibrations if calibration.lidar_from_camera[0, 2] < 0.7)
    return with_frames(
        Finding(
            "warning",
            "calibration",
            f"In {len(ids)} frames the camera does not look along +x of the LiDAR frame.",
            "Check the axes in Tr_velo_to_cam. Camera: x right, y down, z forward. LiDAR: x forward, y left,"
            " z up.",
            ids,
        )
    )


def _statistics(survey: _Survey) -> Statistics:
    filled = [scan for scan in survey.scans if scan.finite]
    boxes = Counter(name for frame in survey.labels for name in frame.types)
    intensity = [scan.intensity for scan in survey.scans if scan.intensity is not None]
    return Statistics(
        frames=len(survey.scans),
        points=_range_of([scan.points for scan in survey.scans]),
        boxes=dict(boxes.most_common()),
        points_per_box={name: _range_of(counts) for name, counts in points_by_class(survey.labels).items()},
        axes={
            name: _extremes([(scan.smallest[axis], scan.median[axis], scan.largest[axis]) for scan in filled])
            for axis, name in enumerate("xyz")
        },
        intensity=_extremes(intensity),
    )


def _range_of(values: Sequence[int]) -> NumberRange:
    if not values:
        return NumberRange()
    return NumberRange(float(min(values)), float(np.median(values)), float(max(values)))


def _extremes(rows: Sequence[tuple[float, float, float]]) -> NumberRange:
    """Return the smallest low, the median of medians, and the largest high."""
    if not rows:
        return NumberRange()
    table = np.array(rows, np.float64)
    return NumberRange(float(table[:, 0].min()), float(np.median(table[:, 1])), float(table[:, 2].max()))
