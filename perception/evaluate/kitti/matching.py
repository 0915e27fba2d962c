"""Matching of detections to labels, and the resulting precision and orientation curves.

The protocol visits the labels of a frame in file order, and each takes the best remaining detection. The
preference does not depend on the score threshold, so candidates are sorted once. The k-th labels of all
frames are then processed together, at all thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.evaluate.box_table import Float64Array
from perception.evaluate.kitti.overlap import Rows
from perception.evaluate.kitti.protocol import EVALUATED, IGNORED, SAMPLE_COUNT, Roles

# The official program's mark for "unassigned"; detections need a higher score.
_NO_SCORE = -1e7


@dataclass(frozen=True, eq=False)
class MatchTask:
    """One class at one difficulty in one metric, over all frames.

    Attributes:
        pair_label, pair_detection: (P,) int64 rows of pairs with more than the minimum overlap.
        pair_overlap: (P,) float64.
        label_role: (N,) int8, see :mod:`perception.evaluate.kitti.protocol`.
        label_frame: (N,) int64, not decreasing.
        label_alpha: (N,) float64 radians.
        detection_role: (M,) int8.
        detection_score: (M,) float64.
        detection_alpha: (M,) float64 radians.
        excused: (M,) bool, True inside a DontCare region: never a false positive.
    """

    pair_label: Rows
    pair_detection: Rows
    pair_overlap: Float64Array
    label_role: Roles
    label_frame: Rows
    label_alpha: Float64Array
    detection_role: Roles
    detection_score: Float64Array
    detection_alpha: Float64Array
    excused: npt.NDArray[np.bool_]


class Curves(NamedTuple):
    """Samples at recall 0, 1/40, ..., 1, each (41,) float64 in [0, 1]."""

    precision: Float64Array
    orientation: Float64Array


def precision_curves(task: MatchTask) -> Curves:
    """Return precision and orientation similarity at the protocol's recall positions."""
    task = relevant_pairs(task)
    label_count = int((task.label_role == EVALUATED).sum())
    scores = [task.detection_score[detection] for _, detection in true_positives(task)]
    thresholds = recall_thresholds(np.concatenate(scores) if scores else np.zeros(0), label_count)
    true, false, similarity = _count_at(task, thresholds)
    found = (true + false).astype(np.float64)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN in the official program too
        return Curves(envelope(true / found), envelope(similarity / found))


def relevant_pairs(task: MatchTask) -> MatchTask:
    """Return the task without pairs whose label or detection does not take part."""
    keep = (task.label_role[task.pair_label] >= IGNORED) & (
        task.detection_role[task.pair_detection] >= IGNORED
    )
    changed = {name: getattr(task, name)[keep] for name in ("pair_label", "pair_detection", "pair_overlap")}
    return MatchTask(**{**vars(task), **changed})


def true_positives(task: MatchTask) -> Iterator[tuple[Rows, Rows]]:
    """Yield labels and detections of true positives when labels take their highest-scoring candidate."""
    order = np.lexsort((task.pair_detection, -task.detection_score[task.pair_detection], task.pair_label))
    taken = ~(task.detection_score > _NO_SCORE)[None]
    for _, label, detection in _walk(task, order, taken):
        yield label, detection


def recall_thresholds(scores: Float64Array, label_count: int) -> Float64Array:
    """Return the scores at which recall is closest to 0, 1/40, ..., 1; at most 41, decreasing.

    A score is skipped if the next one is closer to the position. The last score always gives a threshold.
    With fewer than 41 labels there are fewer thresholds than samples, and the rest of the curve stays zero.
    """
    falling = np.sort(scores)[::-1]
    last = len(falling) - 1
    thresholds: list[float] = []
    index, wanted = 0, 0.0
    while index <= last:
        # Rounding decides ties, so the official test runs, starting shortly before the expected score.
        index = max(index, min(int((wanted * label_count) - 1.5) - 2, last))
        while index < last and (index + 2) / label_count - wanted < wanted - (index + 1) / label_count:
            index += 1
        thresholds.append(float(falling[index]))
        index += 1
        wanted += 1.0 / (SAMPLE_COUNT - 1.0)  # added, not multiplied: rounding decides ties
    return np.array(thresholds, dtype=np.float64)


def _count_at(task: MatchTask, thresholds: Float64Array) -> tuple[Rows, Rows, Float64Array]:
    """Return true positives, false positives and summed orientation similarity at each threshold, (T,)."""
    taken = task.detection_score[None] < thresholds[:, None]
    true = np.zeros(len(thresholds), dtype=np.int64)
    similarity = np.zeros(len(thresholds))
    for threshold, label, detection in matches(task, taken):
        np.add.at(true, threshold, 1)
        turn = task.label_alpha[label] - task.detection_alpha[detection]
        np.add.at(similarity, threshold, (1.0 + np.cos(turn)) / 2.0)
    return true, (~taken[:, accountable(task)]).sum(axis=1), similarity


def accountable(task: MatchTask) -> npt.NDArray[np.bool_]:
    """Return an (M,) mask of detections that are false positives unless a label takes them."""
    counts: npt.NDArray[np.bool_] = (task.detection_role == EVALUATED) & ~task.excused
    return counts


def matches(task: MatchTask, taken: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, Rows, Rows]]:
    """Yield true positives when labels take their candidate of largest overlap.

    Ignored detections come last, in file order.

    Args:
        task: labels and detections.
        taken: (T, M) bool, unavailable detections at each of T thresholds; assigned ones are added.

    Yields:
        Threshold, label and detection.
    """
    ignored = task.detection_role[task.pair_detection] == IGNORED
    preference = np.where(ignored, np.inf, -task.pair_overlap)
    order = np.lexsort((task.pair_detection, preference, task.pair_label))
    yield from _walk(task, order, taken)


def _walk(task: MatchTask, order: Rows, taken: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, Rows, Rows]]:
    """Assign detections label by label and yield threshold, label and detection of true positives.

    Args:
        task: labels and detections.
        order: (P,) pairs grouped by label, best candidate first.
        taken: (T, M) unavailable detections at each threshold; assigned ones are added.
    """
    for labels, candidates in _steps(task, order):
        free = ~taken[:, candidates] & (candidates >= 0)
        best = candidates[np.arange(len(labels)), free.argmax(axis=2)]
        threshold, position = np.nonzero(free.any(axis=2))
        label, detection = labels[position], best[threshold, position]
        taken[threshold, detection] = True
        counts = (task.label_role[label] == EVALUATED) & (task.detection_role[detection] == EVALUATED)
        yield threshold[counts], label[counts], detection[counts]


def _steps(task: MatchTask, order: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield the first label of each frame with its candidates, best first; then the second labels, and so on.

    Candidate rows are padded with -1.
    """
    labels, start, count = np.unique(task.pair_label[order], return_index=True, return_counts=True)
    if len(labels) == 0:
        return
    frames = task.label_frame[labels]
    turn = np.arange(len(labels)) - np.searchsorted(frames, frames, side="left")
    detections = task.pair_detection[order]
    for number in range(int(turn.max()) + 1):
        chosen = np.flatnonzero(turn == number)
        rank = np.arange(int(count[chosen].max()))
        place = np.minimum(start[chosen, None] + rank, len(detections) - 1)
        yield labels[chosen], np.where(rank < count[chosen, None], detections[place], -1)


def envelope(values: Float64Array) -> Float64Array:
    """Return the running maximum from the right over 41 samples, (T,) to (41,).

    As in the official program, NaN samples stay NaN and do not affect the others.
    """
    samples = np.zeros(SAMPLE_COUNT)
    samples[: len(values)] = values
    highest = np.fmax.accumulate(samples[::-1])[::-1]
    return np.where(np.isnan(samples), np.nan, highest)
