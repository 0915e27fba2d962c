"""Conventions of labels, measured on scans, and class statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perception.class_names import mapped_classes
from perception.data.own import LabelPart, OwnDataSet
from perception.data.own.labels import Array, truth_of, without_nameless
from perception.describe.evidence import Evidence, Surety
from perception.doctor.check_missing import LEAST_HEADINGS
from perception.doctor.examine import DEFAULT_CLASSES
from perception.doctor.label_facts import TURNS, LabelFacts, better_turn, measure_labels, points_by_class
from perception.errors import DataError
from perception.io.point_cloud import read_raw_cloud
from perception.io.raw import apply_transform
from perception.scans.facts import finite_xyz

#: Fewest boxes that show a convention.
_LEAST_BOXES = 3
_DEGREES_FROM = 2 * np.pi + 0.01
#: If z is that of the bottom, boxes seem sunk by at least this fraction of half their height.
_SUNK_SHARE = 0.6

Facts = list[LabelFacts]


@dataclass(frozen=True)
class ClassFacts:
    """Boxes of one name in the labels.

    Attributes:
        boxes: number of boxes.
        frames: number of frames with such boxes.
        size_m: median length, width and height in metres.
        points: median number of points inside, in sampled scans; None without such boxes.
        points_boxes: number of boxes of this median.
    """

    boxes: int
    frames: int
    size_m: tuple[float, float, float]
    points: float | None
    points_boxes: int


@dataclass(frozen=True)
class MeasuredLabels:
    """Measurements of labels.

    Attributes:
        evidence: origin of the fields of ``labels``, except path and format, and of ``classes``.
        part: conventions of the labels.
        classes: class by name in the labels.
        facts: statistics by name in the labels, the most frequent first.
        per_frame: names of the boxes by frame.
        boxes: (M, 7) float64, all boxes in metres in the LiDAR frame.
        unreadable: errors of unreadable labels.
        skipped: number of skipped entries by reason.
    """

    evidence: tuple[Evidence, ...]
    part: LabelPart
    classes: dict[str, str | None]
    facts: dict[str, ClassFacts]
    per_frame: dict[str, list[str]]
    boxes: Array
    unreadable: tuple[str, ...]
    skipped: dict[str, int]


def measure_written(data_set: OwnDataSet, sample: Sequence[str]) -> MeasuredLabels:
    """Measure labels.

    Args:
        data_set: data set with default conventions; all its labels are read.
        sample: frames whose scans are measured.

    Raises:
        DataError: most of the labels are unreadable.
    """
    angles = _angles(data_set)
    data_set = _with(data_set, angles=angles.value)
    headings = _headings(data_set)
    height = _bottom(data_set, sample)
    data_set = _with(data_set, z=height.value)
    turn, facts = _turn(data_set, sample)
    data_set = _with(data_set, turn_deg=turn.value, headings=headings.value)
    per_frame, rows, unreadable, skipped = _all_boxes(data_set)
    if 2 * len(unreadable) > len(per_frame) + len(unreadable):
        raise DataError(
            f"{len(unreadable)} of {len(per_frame) + len(unreadable)} label files are unreadable. Fix the"
            f" first: {unreadable[0]}"
        )
    names = [name for listed in per_frame.values() for name in listed]
    classes, spelling = _classes(names)
    part = data_set.description.labels or LabelPart()
    return MeasuredLabels(
        (angles, headings, turn, height, spelling),
        part,
        classes,
        _class_facts(per_frame, names, rows, facts),
        per_frame,
        rows,
        tuple(unreadable),
        skipped,
    )


def _with(data_set: OwnDataSet, **conventions: object) -> OwnDataSet:
    part = replace(data_set.description.labels or LabelPart(), **conventions)  # type: ignore[arg-type]
    description = replace(data_set.description, labels=part)
    return OwnDataSet(data_set.folder, None, "scan or labels", None, description=description)


def _angles(data_set: OwnDataSet) -> Evidence:
    reader, largest, count = data_set.labels, 0.0, 0
    assert reader is not None
    for frame_id in reader.frame_ids():
        try:
            headings = reader.read(frame_id).boxes[:, 6]
        except DataError:
            continue
        largest, count = max(largest, float(np.abs(headings).max(initial=0))), count + len(headings)
    field = "labels.angles"
    if largest > _DEGREES_FROM:
        how = f"headings reach {largest:.4g}, more than a turn in radians"
        return Evidence(field, "degrees", how, "measured")
    how = f"{count} headings reach at most {largest:.3g}, less than a turn"
    sure: Surety = "assumed" if count < _LEAST_BOXES or largest == 0 else "likely"
    return Evidence(field, "radians", how, sure)


def _headings(data_set: OwnDataSet) -> Evidence:
    """Check whether all headings are 0."""
    reader, found, field = data_set.labels, [], "labels.headings"
    assert reader is not None
    for frame_id in reader.frame_ids():
        try:
            found.append(reader.read(frame_id).boxes[:, 6])
        except DataError:
            continue
    headings = np.concatenate([np.zeros(0), *found])
    if len(headings) >= LEAST_HEADINGS and not headings.any():
        how = (
            f"all {len(headings)} headings are 0, so nobody labelled them: boxes lie along the axes, training"
            " learns no heading, and evaluation compares boxes along the axes"
        )
        return Evidence(field, False, how, "measured")
    how = f"{np.count_nonzero(headings)} of {len(headings)} headings differ from 0"
    return Evidence(field, True, how, "measured" if headings.any() else "assumed")


def _bottom(data_set: OwnDataSet, sample: Sequence[str]) -> Evidence:
    """Check whether boxes stand on the ground only if z is that of their bottoms."""
    field, facts = "labels.z", _measured(data_set, sample)
    gaps = _joined(facts, lambda item: item.ground_gap_m)
    heights = _joined(facts, lambda item: item.heights_m)
    known = np.isfinite(gaps)
    if known.sum() < _LEAST_BOXES:
        return Evidence(field, "centre", "too few boxes on ground to tell", "assumed")
    gap, half = float(np.median(gaps[known])), float(np.median(heights[known])) / 2
    raised = _measured(_with(data_set, z="bottom"), sample)
    inside, after = (_joined(found, lambda item: item.points).sum() for found in (facts, raised))
    if gap < -_SUNK_SHARE * half and abs(gap + half) < abs(gap) and after > 0.8 * inside:
        how = f"as centres, boxes would be sunk by {-gap:.2f} m, half their height; as bottoms they stand"
        return Evidence(field, "bottom", how, "measured")
    how = f"as centres, boxes stand {gap:+.2f} m from the ground (median)"
    return Evidence(field, "centre", how, "measured" if abs(gap) < 0.5 * half else "likely")


def _turn(data_set: OwnDataSet, sample: Sequence[str]) -> tuple[Evidence, Facts]:
    field, facts = "labels.turn_deg", _measured(data_set, sample)
    placed = [item for item in facts if len(item.points)]
    found = better_turn(placed) if placed else None
    if found is None:
        elongated = sum(int((item.sizes[:, 0] > 1.3 * item.sizes[:, 1]).sum()) for item in placed)
        how = "turned or mirrored boxes do not contain more points"
        sure: Surety = "measured" if elongated >= _LEAST_BOXES else "assumed"
        return Evidence(field, 0.0, how, sure), facts
    if (TURNS[found.row].sign, TURNS[found.row].quarters) == (1, 1):
        how = f"turned by 90 degrees, boxes contain {found.times:.1f} times the points; -90 fits as well"
        turned = _with(data_set, turn_deg=90.0)
        return Evidence(field, 90.0, how, "likely"), _measured(turned, sample)
    how = f"no turn fixes the headings: {TURNS[found.row].message} ({found.times:.1f} times as many)"
    return Evidence(field, 0.0, how, "assumed"), facts


def _measured(data_set: OwnDataSet, sample: Sequence[str]) -> Facts:
    """Measure the boxes of sampled frames; damaged files are skipped."""
    found = []
    for frame_id in sample:
        try:
            frame = data_set.frame(frame_id)
            if frame.labelled and frame.source is not None:
                raw = apply_transform(read_raw_cloud(frame.source, columns=frame.columns), frame.transform)
                found.append(measure_labels(frame, finite_xyz(raw)))
        except DataError:
            continue
    return found


def _joined(facts: Facts, part: Callable[[LabelFacts], npt.NDArray[np.generic]]) -> Array:
    return np.concatenate([np.zeros(0), *(part(item).astype(np.float64) for item in facts)])


def _all_boxes(data_set: OwnDataSet) -> tuple[dict[str, list[str]], Array, list[str], dict[str, int]]:
    """Read names by frame, all boxes, errors of unreadable files, and reasons of skipped entries."""
    reader, part = data_set.labels, data_set.description.labels
    assert reader is not None
    assert part is not None
    names: dict[str, list[str]] = {}
    rows, unreadable, skipped = [np.zeros((0, 7))], [], Counter[str]()
    for frame_id in sorted(reader.frame_ids()):
        try:
            written = without_nameless(reader.read(frame_id))
            boxes = truth_of(written, part, data_set.description.scans.transform, {}).boxes
        except DataError as error:
            unreadable.append(str(error))
            continue
        skipped.update(written.skipped)
        names[frame_id] = boxes.labels
        rows.append(boxes.boxes.astype(np.float64))
    return names, np.concatenate(rows), unreadable, dict(skipped)


def _classes(names: Sequence[str]) -> tuple[dict[str, str | None], Evidence]:
    """Map names to classes of the shipped weights if they match; merge spellings of others."""
    counts = Counter(names)
    meant = mapped_classes([name for name, _ in counts.most_common()], DEFAULT_CLASSES)
    found: dict[str, str | None] = dict(meant)
    joined = [f"{name} is mapped to {other}" for name, other in meant.items() if name != other]
    how = "name in the labels: class. Write another class, or null to drop boxes. " + ", ".join(
        f"{name}: {count}" for name, count in counts.most_common()
    )
    how += " boxes" if counts else "There are no boxes"
    how += f"; {'; '.join(joined)}" if joined else ""
    return found, Evidence("classes", found, how, "likely" if joined else "measured")


def _class_facts(
    per_frame: dict[str, list[str]], names: Sequence[str], rows: Array, facts: Facts
) -> dict[str, ClassFacts]:
    inside, found = points_by_class(facts), {}
    for name, count in Counter(names).most_common():
        sizes = np.median(rows[[other == name for other in names], 3:6], axis=0)
        found[name] = ClassFacts(
            count,
            sum(name in listed for listed in per_frame.values()),
            (round(float(sizes[0]), 2), round(float(sizes[1]), 2), round(float(sizes[2]), 2)),
            float(np.median(inside[name])) if name in inside else None,
            len(inside.get(name, ())),
        )
    return found
