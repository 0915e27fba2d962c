"""Reads a data set frame by frame and lets the checks judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perception.doctor.check_labels import check_labels
from perception.doctor.check_scans import PLACEMENT_CHECKS, check_scans
from perception.doctor.label_facts import Array, LabelFacts, measure_labels
from perception.doctor.layout import Layout, check_layout, find_layout
from perception.doctor.report import DoctorReport, Spread, Statistics, sorted_findings
from perception.errors import DataError
from perception.io.columns import Columns, parse_columns
from perception.io.kitti import KittiCalibration, KittiObject, read_calibration, read_objects
from perception.io.point_cloud import NUSCENES_AXES, NUSCENES_TRANSFORM, has_other_axes, read_raw_cloud
from perception.io.raw import transformed
from perception.io.transform import ScanTransform
from perception.scans.facts import ScanFacts, finite_xyz, measure_scan
from perception.scans.finding import Finding

#: Classes of the shipped detector.
DEFAULT_CLASSES = ("Car", "Pedestrian", "Cyclist")

_SHOWN_FILES = 10


@dataclass
class _Survey:
    """How scans are read, and what was measured so far; of the points only samples are kept."""

    columns: Columns | None
    transform: ScanTransform
    turned: list[str] = field(default_factory=list)
    scans: list[ScanFacts] = field(default_factory=list)
    labels: list[LabelFacts] = field(default_factory=list)
    calibrations: list[tuple[str, KittiCalibration]] = field(default_factory=list)
    unreadable: list[tuple[str, DataError]] = field(default_factory=list)


def examine_data_set(
    root: str | Path,
    *,
    classes: Sequence[str] = DEFAULT_CLASSES,
    columns: Columns | None = None,
    transform: ScanTransform | None = None,
    max_frames: int | None = None,
    on_frame: Callable[[int, int], None] | None = None,
) -> DoctorReport:
    """Check a data set before training or detection.

    Files that cannot be read become findings and do not end the examination. Where units or axes of the scans
    are wrong, the place of the labels is not judged: fix the errors and run again.

    Args:
        root: a KITTI folder (the one with ``training/``, or ``training`` itself; labels in ``label_2``), or a
            folder of scans without labels.
        classes: classes that training or detection is meant for.
        columns, transform: how the scans are read, as for :func:`~perception.io.load_point_cloud`.
        max_frames: examine only so many frames, spread evenly over the data set.
        on_frame: called with the number of frames done and the number of all, for a progress bar.

    Raises:
        DataError: there is no such folder, or it holds no data set.
        ValueError, TypeError: ``max_frames`` is below 1, or no such columns.
    """
    if max_frames is not None and max_frames < 1:
        raise ValueError(f"max_frames must be at least 1, got {max_frames}")
    names = None if columns is None else parse_columns(columns)
    layout = find_layout(Path(root))
    all_ids = sorted(layout.scans.keys() | layout.labels.keys())
    frame_ids = _spread_evenly(all_ids, max_frames)
    survey = _Survey(names, transform or ScanTransform())
    for done, frame_id in enumerate(frame_ids, 1):
        _survey_frame(frame_id, layout, survey)
        if on_frame is not None:
            on_frame(done, len(frame_ids))
    findings = check_layout(layout) + _unreadable_findings(survey.unreadable)
    if len(frame_ids) < len(all_ids):
        findings.append(
            Finding(
                "info",
                "sample",
                f"{len(frame_ids)} of {len(all_ids)} frames were examined.",
                "Leave out the limit to examine all.",
            )
        )
    findings += _judge(survey, classes, has_frames=bool(all_ids))
    found = sorted_findings(findings)
    return DoctorReport(str(root), found, _statistics(survey), survey.transform)


def _spread_evenly(frame_ids: list[str], limit: int | None) -> list[str]:
    if limit is None or limit >= len(frame_ids):
        return frame_ids
    return [frame_ids[index] for index in np.linspace(0, len(frame_ids) - 1, limit).round().astype(int)]


def _survey_frame(frame_id: str, layout: Layout, survey: _Survey) -> None:
    """Measure scan and labels of one frame; a damaged file is noted and the rest still measured."""
    xyz: Array = np.zeros((0, 3))
    if frame_id in layout.scans:
        try:
            raw = transformed(
                read_raw_cloud(layout.scans[frame_id], columns=survey.columns), survey.transform
            )
            survey.scans.append(measure_scan(frame_id, raw))
            xyz = finite_xyz(raw)
            if has_other_axes(layout.scans[frame_id], survey.transform):
                survey.turned.append(frame_id)
        except DataError as error:
            survey.unreadable.append((frame_id, error))
    calibration = _read_calibration(frame_id, layout, survey)
    if frame_id in layout.labels:
        try:
            objects: list[KittiObject] = read_objects(layout.labels[frame_id])
        except DataError as error:
            survey.unreadable.append((frame_id, error))
        else:
            survey.labels.append(measure_labels(frame_id, objects, xyz, calibration))


def _read_calibration(frame_id: str, layout: Layout, survey: _Survey) -> KittiCalibration | None:
    if frame_id not in layout.calibrations:
        return None
    try:
        calibration = read_calibration(layout.calibrations[frame_id])
    except DataError as error:
        survey.unreadable.append((frame_id, error))
        return None
    survey.calibrations.append((frame_id, calibration))
    return calibration


def _unreadable_findings(unreadable: Sequence[tuple[str, DataError]]) -> list[Finding]:
    fix = "Repair or replace the file, or take the frame out of the data set."
    findings = [
        Finding("error", "unreadable", str(error), fix, (frame_id,))
        for frame_id, error in unreadable[:_SHOWN_FILES]
    ]
    rest = unreadable[_SHOWN_FILES:]
    if rest:
        ids = tuple(frame_id for frame_id, _ in rest)
        findings.append(Finding("error", "unreadable", f"{len(rest)} more files cannot be read.", fix, ids))
    return findings


def _judge(survey: _Survey, classes: Sequence[str], *, has_frames: bool) -> list[Finding]:
    if not has_frames:
        return [
            Finding("error", "empty", "The data set has no frames.", "Put one scan a frame into velodyne/.")
        ]
    findings = check_scans(survey.scans, sensor_height_m=survey.transform.sensor_height_m)
    if survey.turned and not any(item.transform and item.transform.axes for item in findings):
        fix = "Write x = y, y = -x (old values on the right), or say --axes x,y,z if that has been done."
        ids = tuple(survey.turned)
        findings.append(Finding("warning", "axes", f"{NUSCENES_AXES}.", fix, ids, NUSCENES_TRANSFORM))
    astray = any(item.severity == "error" and item.check in PLACEMENT_CHECKS for item in findings)
    calibration = _calibration_findings(survey.calibrations)
    labels = check_labels(survey.labels, classes, judge_place=not astray) if survey.labels else []
    if any(item.check == "units" for item in labels):
        # The ground was judged in the wrong unit.
        findings = [item for item in findings if item.check != "ground"]
    return findings + labels + calibration


def _calibration_findings(calibrations: Sequence[tuple[str, KittiCalibration]]) -> list[Finding]:
    """The camera's optical axis should point along the LiDAR's x, or x is not forward for the labels."""
    sideways = tuple(
        frame_id for frame_id, calibration in calibrations if calibration.lidar_from_camera[0, 2] < 0.7
    )
    if not sideways:
        return []
    return [
        Finding(
            "warning",
            "calibration",
            f"In {len(sideways)} frames the camera does not look along +x of the LiDAR frame.",
            "Check the axes in Tr_velo_to_cam: camera x right, y down, z forward; LiDAR x forward, y left,"
            " z up.",
            sideways,
        )
    ]


def _statistics(survey: _Survey) -> Statistics:
    filled = [scan for scan in survey.scans if scan.finite]
    boxes = Counter(name for frame in survey.labels for name in frame.types)
    inside: dict[str, list[int]] = {}
    for frame in survey.labels:
        placed = [name for name, place in zip(frame.types, frame.placed, strict=True) if place]
        for name, count in zip(placed, frame.points, strict=True):
            inside.setdefault(name, []).append(int(count))
    intensity = [scan.intensity for scan in survey.scans if scan.intensity is not None]
    return Statistics(
        frames=len(survey.scans),
        points=_spread([scan.points for scan in survey.scans]),
        boxes=dict(boxes.most_common()),
        points_per_box={name: _spread(counts) for name, counts in inside.items()},
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
