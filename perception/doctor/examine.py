"""Reads a data set frame by frame and lets the checks judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perception.checkpoints.weights import load_weights
from perception.config import PillarConfig
from perception.data import CameraCalibration, DataSet, Frame, open_data_set
from perception.data.own import OwnDataSet
from perception.doctor.check_classes import check_trained_classes
from perception.doctor.check_frames import check_repeated_scans, fingerprint
from perception.doctor.check_labels import check_labels
from perception.doctor.check_range import check_range
from perception.doctor.check_scans import PLACEMENT_CHECKS, check_scans
from perception.doctor.label_facts import Array, LabelFacts, measure_labels, points_by_class
from perception.doctor.report import DoctorReport, Spread, Statistics, sorted_findings
from perception.doctor.wording import in_description, words_for
from perception.errors import DataError
from perception.io.columns import Columns, parse_columns
from perception.io.transform import ScanTransform
from perception.scans.facts import ScanFacts, finite_xyz, measure_scan
from perception.scans.finding import Finding, with_frames

#: Classes of the shipped detector.
DEFAULT_CLASSES = ("Car", "Pedestrian", "Cyclist")

_SHOWN_FILES = 10


@dataclass
class _Survey:
    """How scans are read, and what was measured so far; of the points only samples are kept."""

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
    def noting(self, frame: Frame) -> Iterator[None]:
        """Note that a file of the frame cannot be read, and go on."""
        try:
            yield
        except DataError as error:
            self.unreadable.append((frame.frame_id, error))


def examine_data_set(
    root: str | Path,
    *,
    classes: Sequence[str] | None = None,
    pillars: PillarConfig | None = None,
    weights: str | Path | None = None,
    columns: Columns | None = None,
    transform: ScanTransform | None = None,
    max_frames: int | None = None,
    on_frame: Callable[[int, int], None] | None = None,
) -> DoctorReport:
    """Check a data set before training or detection.

    Files that cannot be read become findings and do not end the examination. Where units or axes of the scans
    are wrong, the place of the labels is not judged: fix the errors and run again.

    Args:
        root: of any kind that :func:`~perception.data.open_data_set` knows, or a folder of scans.
        classes: classes that training or detection is meant for; None: those of the shipped detector on
            KITTI's data, else all of the data set.
        pillars: range of the detector that is meant; None: whether boxes lie in it is not judged.
        weights: shipped name or file that training starts from; None: whether they know the classes under
            other names is not judged.
        columns, transform: how the scans are read, as for :func:`~perception.io.load_point_cloud`; of a data
            set that says so itself, what is to be changed besides.
        max_frames: examine only so many frames, spread evenly over the data set.
        on_frame: called with the number of frames done and the number of all, for a progress bar.

    Raises:
        DataError: there is no such folder, or it holds no data set.
        CheckpointError: no such weights.
        ValueError, TypeError: ``max_frames`` is below 1, or no such columns.
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
        what = f"{len(frame_ids)} of {len(data_set)} frames were examined."
        findings.append(Finding("info", "sample", what, "Leave out the limit to examine all."))
    if classes is None:
        others = data_set.evaluation not in (None, "kitti")
        classes = data_set.classes if others else DEFAULT_CLASSES
    findings += _judge(survey, classes, data_set, pillars) if frame_ids else []
    if weights is not None:
        named = classes or tuple(dict.fromkeys(name for frame in survey.labels for name in frame.types))
        findings += check_trained_classes(named, load_weights(weights).config.head.classes, str(weights))
    if isinstance(data_set, OwnDataSet):
        findings = [in_description(item, data_set.description.scans.transform) for item in findings]
    found = sorted_findings(findings)
    return DoctorReport(str(root), found, _statistics(survey), survey.transform)


def _survey_frame(frame: Frame, survey: _Survey) -> None:
    """Measure scan and labels of one frame; a damaged file is noted and the rest still measured."""
    xyz: Array = np.zeros((0, 3))
    if frame.source is not None:
        with survey.noting(frame):
            raw, survey.sensor_height_m = frame.stored(survey.columns, survey.transform)
            if len(raw.xyz):
                survey.prints[frame.frame_id] = fingerprint(raw.xyz)
            survey.scans.append(measure_scan(frame.frame_id, raw))
            xyz = finite_xyz(raw)
    placed = False
    if frame.calibrated:
        with survey.noting(frame):
            survey.calibrations.append((frame.frame_id, frame.calibration))
            placed = True
    if frame.labelled:
        survey.skipped += [(why, frame.frame_id) for why in frame.skipped]
        with survey.noting(frame):
            survey.labels.append(measure_labels(frame, xyz if placed or not frame.objects else xyz[:0]))


def _unreadable_findings(unreadable: Sequence[tuple[str, DataError]]) -> list[Finding]:
    shown, rest = unreadable[:_SHOWN_FILES], unreadable[_SHOWN_FILES:]
    told: list[tuple[str, tuple[str, ...]]] = [(str(error), (name,)) for name, error in shown]
    told.append((f"{len(rest)} more files cannot be read.", tuple(frame_id for frame_id, _ in rest)))
    fix = "Repair or replace the file, or take the frame out of the data set."
    return with_frames(*(Finding("error", "unreadable", message, fix, ids) for message, ids in told))


def _skipped_findings(skipped: Sequence[tuple[str, str]]) -> list[Finding]:
    fix = "Nothing to do if these are meant to be left out."
    return [
        Finding(
            "info",
            "skipped",
            f"{count} entries of the labels were skipped: {why}.",
            fix,
            tuple(dict.fromkeys(name for other, name in skipped if other == why)),
        )
        for why, count in Counter(why for why, _ in skipped).items()
    ]


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
        # The ground was judged in the wrong unit.
        findings = [item for item in findings if item.check != "ground"]
    return findings + labels + calibration


def _calibration_findings(calibrations: Sequence[tuple[str, CameraCalibration]]) -> list[Finding]:
    """The camera's optical axis should point along the LiDAR's x, or x is not forward for the labels."""
    ids = tuple(name for name, calibration in calibrations if calibration.lidar_from_camera[0, 2] < 0.7)
    return with_frames(
        Finding(
            "warning",
            "calibration",
            f"In {len(ids)} frames the camera does not look along +x of the LiDAR frame.",
            "Check the axes in Tr_velo_to_cam: camera x right, y down, z forward; LiDAR x forward, y left,"
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
        points=_spread([scan.points for scan in survey.scans]),
        boxes=dict(boxes.most_common()),
        points_per_box={name: _spread(counts) for name, counts in points_by_class(survey.labels).items()},
        axes={
            name: _extremes([(scan.smallest[axis], scan.median[axis], scan.largest[axis]) for scan in filled])
            for axis, name in enumerate("xyz")
        },
        intensity=_extremes(intensity),
    )


def _spread(values: Sequence[int]) -> Spread:
    return Spread(float(min(values)), float(np.median(values)), float(max(values))) if values else Spread()


def _extremes(rows: Sequence[tuple[float, float, float]]) -> Spread:
    """Smallest low, median of the medians, largest high."""
    if not rows:
        return Spread()
    table = np.array(rows, np.float64)
    return Spread(float(table[:, 0].min()), float(np.median(table[:, 1])), float(table[:, 2].max()))
