"""KITTI average precision on any multiset of frames.

The counts of a frame depend on that frame alone and change only at its own scores. Those changes, sorted by
score over all frames, give the counts of any sample at any threshold by a sum. The thresholds of a sample are
chosen among its own true positives, as the protocol requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perception.data.kitti.tracking import ObjectTable
from perception.evaluate.box_table import Float64Array, Mask, Rows
from perception.evaluate.kitti.evaluation import FrameComparison, compare_frames, match_task, overlap_limits
from perception.evaluate.kitti.frames import FrameSource, load_frames
from perception.evaluate.kitti.matching import (
    MatchTask,
    accountable,
    envelope,
    matches,
    recall_thresholds,
    relevant_pairs,
    true_positives,
)
from perception.evaluate.kitti.protocol import (
    DIFFICULTIES,
    EVALUATED,
    IGNORED,
    OVERLAP_METRICS,
    SAMPLE_COUNT,
    label_roles,
)
from perception.evaluate.options import MissingResults
from perception.evaluate.ranking import POINT_COUNTS, RANGES
from perception.evaluate.resampling import Measure, Sampler

#: Difficulty of the parts by range and by points: the one that ignores the fewest labels.
_WIDEST = DIFFICULTIES[-1]


class FrameCounts(NamedTuple):
    """Changes of true and false positives per frame as the threshold falls.

    Attributes:
        score: (E,) float64, not increasing: scores at which a frame's counts change.
        frame: (E,) int64.
        true, false: (E,) int64 changes.
        found_score: (T,) float64 scores of the first pass' true positives, not increasing.
        found_frame: (T,) int64.
        label_frame: (N,) int64 of the labels that count.
    """

    score: Float64Array
    frame: Rows
    true: Rows
    false: Rows
    found_score: Float64Array
    found_frame: Rows
    label_frame: Rows

    def average_precision(self, copies: Rows) -> float:
        """Return AP40 in percent with (F,) copies of each frame; NaN without a label."""
        labels = int(copies[self.label_frame].sum())
        if labels == 0:
            return float("nan")
        thresholds = recall_thresholds(np.repeat(self.found_score, copies[self.found_frame]), labels)
        weight = copies[self.frame]
        place = np.searchsorted(-self.score, -thresholds, side="right")
        true, false = (
            np.concatenate(([0], np.cumsum(weight * change)))[place] for change in (self.true, self.false)
        )
        with np.errstate(invalid="ignore"):
            curve = envelope(true / (true + false).astype(np.float64))
        return 100.0 * float(np.mean(curve[1:SAMPLE_COUNT]))


def frame_counts(task: MatchTask, detection_frame: Rows, frames: int) -> FrameCounts:
    """Match every frame at each of its own scores, all frames at once."""
    task = relevant_pairs(task)
    first = list(true_positives(task))
    label, found = (
        np.concatenate([part[side] for part in first]) if first else np.zeros(0, np.int64) for side in (0, 1)
    )
    order = np.argsort(-task.detection_score[found], kind="stable")
    takes_part = accountable(task)
    takes_part[task.pair_detection] = True
    level, number = _levels(task.detection_score, detection_frame, takes_part, frames)
    taken = (task.detection_score[None] < level[:, detection_frame]) | (number[detection_frame] == 0)
    true = np.zeros(level.shape, np.int64)
    for row, hit, _ in matches(task, taken):
        np.add.at(true, (row, task.label_frame[hit]), 1)
    left = ~taken & accountable(task)
    false = np.zeros(level.shape, np.int64)
    row, detection = np.nonzero(left)
    np.add.at(false, (row, detection_frame[detection]), 1)
    changes = [np.diff(count, axis=0, prepend=0) for count in (true, false)]
    row, frame = np.nonzero(
        (np.arange(len(level))[:, None] < number) & ((changes[0] != 0) | (changes[1] != 0))
    )
    falling = np.argsort(-level[row, frame], kind="stable")
    row, frame = row[falling], frame[falling]
    return FrameCounts(
        level[row, frame],
        frame,
        changes[0][row, frame],
        changes[1][row, frame],
        task.detection_score[found][order],
        task.label_frame[label][order],
        task.label_frame[task.label_role == EVALUATED],
    )


def _levels(score: Float64Array, frame: Rows, takes_part: Mask, frames: int) -> tuple[Float64Array, Rows]:
    """Return the distinct scores of each frame, decreasing, (L, frames) padded with the lowest; and their
    number.
    """
    rows = np.flatnonzero(takes_part)
    rows = rows[np.lexsort((-score[rows], frame[rows]))]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(score[rows]) != 0) | (np.diff(frame[rows]) != 0)
    rows = rows[new]
    number = np.bincount(frame[rows], minlength=frames)
    start = np.cumsum(number) - number
    most = int(number.max(initial=0))
    place = start + np.minimum(np.arange(most)[:, None], np.maximum(number - 1, 0))
    if len(rows) == 0:
        return np.zeros((0, frames)), number
    return score[rows][np.minimum(place, len(rows) - 1)], number


class KittiSampler(Sampler):
    """Sampler of AP for every class, metric and difficulty, and of 3D results by range and points.

    Args:
        labels, results: as in :func:`~perception.evaluate.kitti.evaluate_kitti`.
        classes: classes to measure; classes without a counting label are dropped.
        points: frame to (M,) points in its labels without DontCare; None: unknown.
        missing_results: as in :func:`~perception.evaluate.kitti.evaluate_kitti`.
    """

    def __init__(
        self,
        labels: FrameSource,
        results: FrameSource,
        *,
        classes: Sequence[str],
        points: Mapping[str, Rows] | None = None,
        missing_results: MissingResults = "error",
    ) -> None:
        limits = overlap_limits(classes, None)
        self.frame_ids, truth, found = load_frames(labels, results, missing_results=missing_results)
        scene = compare_frames(truth, found)
        counted = None if points is None else [points[frame_id] for frame_id in self.frame_ids]
        inside = np.concatenate(counted) if counted else None
        self._precisions: list[tuple[Measure, FrameCounts]] = []
        self._recalls: list[tuple[Measure, Rows, Rows]] = []
        for name in classes:
            self._add_class(scene, name, limits[name], inside)
        self.measures = (
            *(measure for measure, _ in self._precisions),
            *(measure for measure, *_ in self._recalls),
        )

    def _add_class(self, scene: FrameComparison, name: str, limit: float, points: Rows | None) -> None:
        frames = len(self.frame_ids)
        for difficulty in DIFFICULTIES:
            roles = label_roles(scene.labels, name, difficulty)
            if not (roles == EVALUATED).any():
                continue
            for metric in OVERLAP_METRICS:
                task = match_task(scene, name, difficulty, roles, metric, min_overlap=limit)
                counts = frame_counts(task, scene.detections.frame, frames)
                measure = Measure(name, f"AP {metric.upper()} {difficulty.name}")
                self._precisions.append((measure, counts))
        roles = label_roles(scene.labels, name, _WIDEST)
        away, found_away = (_distance_m(table) for table in (scene.labels, scene.detections))
        for part in RANGES:
            near = np.where((roles == EVALUATED) & ~part.holds(away), IGNORED, roles).astype(np.int8)
            if (near == EVALUATED).any():
                task = match_task(scene, name, _WIDEST, near, "3d", min_overlap=limit)
                task = replace(task, excused=task.excused | ~part.holds(found_away))
                counts = frame_counts(task, scene.detections.frame, frames)
                measure = Measure(name, f"AP 3D {_WIDEST.name}", part.name)
                self._precisions.append((measure, counts))
        if points is None:
            return
        task = relevant_pairs(match_task(scene, name, _WIDEST, roles, "3d", min_overlap=limit))
        found = np.zeros(len(roles), np.bool_)
        for _, label, _ in matches(task, np.zeros((1, len(task.detection_score)), np.bool_)):
            found[label] = True
        for part in POINT_COUNTS:
            within = part.holds(points) & (roles == EVALUATED)
            if within.any():
                frame = scene.labels.frame
                measure = Measure(name, "recall 3D", part.name)
                self._recalls.append((measure, frame[within], frame[within & found]))

    def values(self, copies: Rows) -> Float64Array:
        """Measure samples in percent; see :meth:`Sampler.values`."""
        columns = [
            np.array([counts.average_precision(sample) for sample in copies], np.float64)
            for _, counts in self._precisions
        ]
        with np.errstate(invalid="ignore"):
            columns += [
                100.0 * copies[:, found].sum(axis=1) / copies[:, labels].sum(axis=1)
                for _, labels, found in self._recalls
            ]
        return np.stack(columns, axis=1) if columns else np.zeros((len(copies), 0))


def _distance_m(objects: ObjectTable) -> Float64Array:
    """Return (M,) ground distances from the camera, metres."""
    return np.asarray(np.hypot(objects.location[:, 0], objects.location[:, 2]))
