"""The KITTI object benchmark: 2-D, bird's-eye and 3-D average precision and orientation similarity.

It reproduces ``evaluate_object.cpp`` of the KITTI object development kit (2017 and later; AP over 40 recall
positions since October 2019). Where that program and its documentation differ, the program is followed:
docs/decisions/0003-kitti-evaluation.md has every rule and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perception.data.camera import DONT_CARE
from perception.errors import DataError
from perception.evaluate.box_table import Float64Array
from perception.evaluate.kitti.frames import FrameSource, ObjectTable, load_frames
from perception.evaluate.kitti.matching import MatchTask, precision_curves
from perception.evaluate.kitti.overlap import Overlaps, find_overlaps, largest_coverage
from perception.evaluate.kitti.protocol import (
    CLASSES,
    DEFAULT_MIN_OVERLAP,
    DIFFICULTIES,
    EVALUATED,
    METRICS,
    MIN_OVERLAPS,
    OVERLAP_METRICS,
    SAMPLE_COUNT,
    Difficulty,
    DifficultyName,
    OverlapMetric,
    Roles,
    detection_roles,
    has_orientation,
    label_roles,
    officially_reported,
)
from perception.evaluate.kitti.result import CurveKey, KittiResult
from perception.evaluate.options import MissingResults


def evaluate_kitti(
    label_dir: FrameSource,
    result_dir: FrameSource,
    *,
    classes: Sequence[str] = CLASSES,
    frame_ids: Iterable[str] | None = None,
    missing_results: MissingResults = "error",
    min_overlaps: Mapping[str, float] | None = None,
) -> KittiResult:
    """Average precision of result files against label files.

    Args:
        label_dir: folder of KITTI label files, one ``.txt`` a frame; or one list of ``CameraObject`` a frame,
            as a sequence or as a mapping from frame id. It defines the frames.
        result_dir: the detections in the same form; each needs a score.
        classes: what to evaluate. Classes that KITTI does not know have no neighbours.
        frame_ids: evaluate only these frames (file names without ``.txt``).
        missing_results: frames without results: ``"error"`` like the official program; ``"empty"``: nothing
            was detected there; ``"skip"``: leave the frame out.
        min_overlaps: minimum overlap by class name, for other values than KITTI's 0.7 (Car) and 0.5.

    Raises:
        DataError: a file or line that cannot be used (named), a result without score, labels without
            results, no frame in common, a class that occurs neither in labels nor in KITTI.
        ValueError: an argument out of range.
    """
    limits = overlap_limits(classes, min_overlaps)
    frame_ids_used, labels, detections = load_frames(
        label_dir, result_dir, frame_ids=frame_ids, missing_results=missing_results
    )
    _check_classes(classes, labels)
    scene = compare_frames(labels, detections)
    curves: dict[CurveKey, Float64Array] = {}
    counts: dict[tuple[str, DifficultyName], int] = {}
    for name in classes:
        for difficulty in DIFFICULTIES:
            roles = label_roles(scene.labels, name, difficulty)
            counts[name, difficulty.name] = int((roles == EVALUATED).sum())
            curves |= _curves_of(scene, name, difficulty, roles, min_overlap=limits[name])
    return KittiResult(
        classes=tuple(classes),
        frame_ids=frame_ids_used,
        curves=curves,
        label_counts=counts,
        unreported=frozenset(
            (name, metric)
            for name in classes
            for metric in METRICS
            if not officially_reported(detections, name, metric)
        ),
    )


@dataclass(frozen=True, eq=False)
class FrameComparison:
    """All frames: what is shared by every class and difficulty.

    Attributes:
        labels: N labels without DontCare.
        detections: M detections.
        overlaps: pairs of the two.
        coverage: metric to (M,) float64, largest part of each detection in one DontCare region.
    """

    labels: ObjectTable
    detections: ObjectTable
    overlaps: Overlaps
    coverage: dict[OverlapMetric, Float64Array]


def compare_frames(labels: ObjectTable, detections: ObjectTable) -> FrameComparison:
    """Overlaps of all frames."""
    regions = labels.type == DONT_CARE.lower()
    objects = labels.rows(~regions)
    in_regions = find_overlaps(labels.rows(regions), detections)
    return FrameComparison(
        labels=objects,
        detections=detections,
        overlaps=find_overlaps(objects, detections),
        coverage={
            metric: largest_coverage(in_regions, metric, len(detections)) for metric in OVERLAP_METRICS
        },
    )


def _curves_of(
    scene: FrameComparison, class_name: str, difficulty: Difficulty, roles: Roles, *, min_overlap: float
) -> dict[CurveKey, Float64Array]:
    """The four curves of a class at a difficulty, (41,) each."""
    curves: dict[CurveKey, Float64Array] = {}
    for metric in OVERLAP_METRICS:
        task = match_task(scene, class_name, difficulty, roles, metric, min_overlap=min_overlap)
        found = precision_curves(task)
        curves[class_name, metric, difficulty.name] = found.precision
        if metric == "2d":
            defined = has_orientation(scene.detections)
            curves[class_name, "aos", difficulty.name] = (
                found.orientation if defined else np.full(SAMPLE_COUNT, np.nan)
            )
    return curves


def match_task(
    scene: FrameComparison,
    class_name: str,
    difficulty: Difficulty,
    roles: Roles,
    metric: OverlapMetric,
    *,
    min_overlap: float,
) -> MatchTask:
    """What the matching of a class at a difficulty in a metric needs; ``roles`` are those of the labels."""
    overlap = scene.overlaps.over_union[metric]
    matches = overlap > min_overlap
    return MatchTask(
        pair_label=scene.overlaps.label[matches],
        pair_detection=scene.overlaps.detection[matches],
        pair_overlap=overlap[matches],
        label_role=roles,
        label_frame=scene.labels.frame,
        label_alpha=scene.labels.alpha,
        detection_role=detection_roles(scene.detections, class_name, difficulty),
        detection_score=scene.detections.score,
        detection_alpha=scene.detections.alpha,
        excused=scene.coverage[metric] > min_overlap,
    )


def overlap_limits(classes: Sequence[str], min_overlaps: Mapping[str, float] | None) -> dict[str, float]:
    """Minimum overlap by class; ``ValueError`` for classes or limits that cannot be."""
    if isinstance(classes, str) or not classes:
        raise ValueError(f"classes must be a sequence of one or more class names, got {classes!r}")
    if len({name.lower() for name in classes}) != len(classes):
        raise ValueError(f"classes must not name a class twice (case does not count), got {tuple(classes)}")
    given = {name.lower(): limit for name, limit in (min_overlaps or {}).items()}
    unknown = set(given) - {name.lower() for name in classes}
    if unknown:
        raise ValueError(f"min_overlaps names {', '.join(sorted(unknown))}, not among the classes {classes}")
    for name, limit in given.items():
        if not 0 <= limit < 1:
            raise ValueError(f"min_overlaps[{name!r}] must be at least 0 and below 1, got {limit!r}")
    limits = {**MIN_OVERLAPS, **given}
    return {name: limits.get(name.lower(), DEFAULT_MIN_OVERLAP) for name in classes}


def _check_classes(classes: Sequence[str], labels: ObjectTable) -> None:
    present = set(labels.type.tolist())
    unknown = [name for name in classes if name.lower() not in present | set(MIN_OVERLAPS)]
    if unknown:
        there = ", ".join(sorted(present)) or "no objects"
        raise DataError(f"no label is a {' or '.join(unknown)}; the labels have {there}")
