"""The KITTI object benchmark: 2D, bird's-eye and 3D average precision and orientation similarity.

It reproduces ``evaluate_object.cpp`` of the KITTI object development kit (2017 and later; AP over 40 recall
positions since October 2019). Where that program and its documentation differ, the program counts.
docs/decisions/0003-kitti-evaluation.md lists every rule and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perception.data.camera import DONT_CARE
from perception.data.kitti.tracking import ObjectTable
from perception.errors import DataError
from perception.evaluate.box_table import Float64Array
from perception.evaluate.kitti.frames import FrameSource, load_frames
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
    """Compute the average precision of result files against label files.

    Args:
        label_dir: folder of KITTI label files, one ``.txt`` per frame; or one list of ``CameraObject`` per
            frame, as a sequence or as a mapping from frame id. It defines the frames.
        result_dir: detections in the same form; each needs a score.
        classes: classes to evaluate. Classes unknown to KITTI have no neighbours.
        frame_ids: evaluate only these frames (file names without ``.txt``).
        missing_results: treatment of frames without results. ``"error"``: raise, like the official program.
            ``"empty"``: nothing was detected. ``"skip"``: exclude the frame.
        min_overlaps: minimum overlap by class, instead of KITTI's 0.7 (Car) and 0.5.

    Raises:
        DataError: an invalid file or line (named), a result without score, labels without results, no common
            frame, or a class that neither the labels nor KITTI has.
        ValueError: an argument is out of range.
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
    """All frames: data shared by every class and difficulty.

    Attributes:
        labels: N labels without DontCare.
        detections: M detections.
        overlaps: overlapping pairs.
        coverage: metric to (M,) float64, largest share of each detection inside one DontCare region.
    """

    labels: ObjectTable
    detections: ObjectTable
    overlaps: Overlaps
    coverage: dict[OverlapMetric, Float64Array]


def compare_frames(labels: ObjectTable, detections: ObjectTable) -> FrameComparison:
    """Compute the overlaps of all frames."""
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
    """Return the four (41,) curves of a class at a difficulty."""
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
    """Return the matching problem of a class, difficulty and metric; ``roles`` are those of the labels."""
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
    """Return the minimum overlap by class.

    Raises:
        ValueError: invalid classes or limits.
    """
    if isinstance(classes, str) or not classes:
        raise ValueError(f"classes must be a sequence of one or more class names, got {classes!r}")
    if len({name.lower() for name in classes}) != len(classes):
        raise ValueError(f"classes lists a class twice (case does not count): {tuple(classes)}; remove one")
    given = {name.lower(): limit for name, limit in (min_overlaps or {}).items()}
    unknown = set(given) - {name.lower() for name in classes}
    if unknown:
        raise ValueError(f"min_overlaps has {', '.join(sorted(unknown))}; use only the classes {classes}")
    for name, limit in given.items():
        if not 0 <= limit < 1:
            raise ValueError(f"min_overlaps[{name!r}] must be at least 0 and below 1, got {limit!r}")
    limits = {**MIN_OVERLAPS, **given}
    return {name: limits.get(name.lower(), DEFAULT_MIN_OVERLAP) for name in classes}


def _check_classes(classes: Sequence[str], labels: ObjectTable) -> None:
    present = set(labels.type.tolist())
    unknown = [name for name in classes if name.lower() not in present | set(MIN_OVERLAPS)]
    if unknown:
        known = ", ".join(sorted(present)) or "no objects"
        raise DataError(f"no label has the class {' or '.join(unknown)}; choose from: {known}")
