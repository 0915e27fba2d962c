"""Assignment of detections to labels and what follows from it: precision and orientation curves.

The protocol walks through the labels of a frame in the order of the file, and each takes the best detection
that is left. What "best" means does not depend on the score threshold, so candidates are sorted once; the
walk then takes the k-th label of every frame and all thresholds together, in arrays.
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

# The official program's mark for "nothing assigned"; a detection must score more to be noticed.
_NO_SCORE = -1e7


@dataclass(frozen=True, eq=False)
class MatchTask:
    """One class at one difficulty in one metric, over all frames.

    Attributes:
        pair_label, pair_detection: (P,) int64 rows; pairs with more than the minimum overlap.
        pair_overlap: (P,) float64.
        label_role: (N,) int8, see ``kitti_protocol``.
        label_frame: (N,) int64, not decreasing.
        label_alpha: (N,) float64 radians.
        detection_role: (M,) int8.
        detection_score: (M,) float64.
        detection_alpha: (M,) float64 radians.
        excused: (M,) bool: in a DontCare region, so never a false positive.
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
    """Precision and orientation similarity at the protocol's recall positions."""
    task = relevant_pairs(task)
    label_count = int((task.label_role == EVALUATED).sum())
    scores = [task.detection_score[detection] for _, detection in true_positives(task)]
    thresholds = recall_thresholds(np.concatenate(scores) if scores else np.zeros(0), label_count)
    true, false, similarity = _count_at(task, thresholds)
    found = (true + false).astype(np.float64)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN in the official program too
        return Curves(envelope(true / found), envelope(similarity / found))


def relevant_pairs(task: MatchTask) -> MatchTask:
    """The task without pairs whose label or detection takes no part."""
    keep = (task.label_role[task.pair_label] >= IGNORED) & (
        task.detection_role[task.pair_detection] >= IGNORED
    )
    changed = {name: getattr(task, name)[keep] for name in ("pair_label", "pair_detection", "pair_overlap")}
    return MatchTask(**{**vars(task), **changed})


def true_positives(task: MatchTask) -> Iterator[tuple[Rows, Rows]]:
    """Labels and detections of true positives when labels take their candidate of the highest score."""
    order = np.lexsort((task.pair_detection, -task.detection_score[task.pair_detection], task.pair_label))
    taken = ~(task.detection_score > _NO_SCORE)[None]
    for _, label, detection in _walk(task, order, taken):
        yield label, detection


def recall_thresholds(scores: Float64Array, label_count: int) -> Float64Array:
    """Scores at which recall comes closest to 0, 1/40, ..., 1; at most 41, falling.

    Going down the scores one is passed over while the next recall is nearer to the wanted one; the last one
    always gives a threshold, whatever its recall. With fewer than 41 labels there are fewer thresholds than
    samples, and the rest of the curve stays at zero.
    """
    falling = np.sort(scores)[::-1]
    last = len(falling) - 1
    thresholds: list[float] = []
    index, wanted = 0, 0.0
    while index <= last:
        # Rounding decides ties, so the test itself is made, from some way before the score that is expected.
        index = max(index, min(int((wanted * label_count) - 1.5) - 2, last))
        while index < last and (index + 2) / label_count - wanted < wanted - (index + 1) / label_count:
            index += 1
        thresholds.append(float(falling[index]))
        index += 1
        wanted += 1.0 / (SAMPLE_COUNT - 1.0)  # summed up, not multiplied: rounding decides ties
    return np.array(thresholds, dtype=np.float64)


def _count_at(task: MatchTask, thresholds: Float64Array) -> tuple[Rows, Rows, Float64Array]:
    """True positives, false positives and the sum of orientation similarities at each threshold, (T,)."""
    taken = task.detection_score[None] < thresholds[:, None]
    true = np.zeros(len(thresholds), dtype=np.int64)
    similarity = np.zeros(len(thresholds))
    for threshold, label, detection in matches(task, taken):
        np.add.at(true, threshold, 1)
        turn = task.label_alpha[label] - task.detection_alpha[detection]
        np.add.at(similarity, threshold, (1.0 + np.cos(turn)) / 2.0)
    return true, (~taken[:, accountable(task)]).sum(axis=1), similarity


def accountable(task: MatchTask) -> npt.NDArray[np.bool_]:
    """(M,) bool: detections that are false positives where no label takes them."""
    counts: npt.NDArray[np.bool_] = (task.detection_role == EVALUATED) & ~task.excused
    return counts


def matches(task: MatchTask, taken: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, Rows, Rows]]:
    """True positives when labels take their candidate of the largest overlap.

    Ignored detections come last, in the order of the file.

    Args:
        task: labels and detections.
        taken: (T, M) bool, detections that are not there, at each of T thresholds; taken ones are added.

    Yields:
        Threshold, label and detection.
    """
    ignored = task.detection_role[task.pair_detection] == IGNORED
    preference = np.where(ignored, np.inf, -task.pair_overlap)
    order = np.lexsort((task.pair_detection, preference, task.pair_label))
    yield from _walk(task, order, taken)


def _walk(task: MatchTask, order: Rows, taken: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, Rows, Rows]]:
    """Assign detections label by label.

    Args:
        task: labels and detections.
        order: (P,) the pairs, grouped by label, best candidate first.
        taken: (T, M) detections that are not available at a threshold; assigned ones are added.

    Yields:
        Threshold, label and detection of true positives.
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
    """The first label of each frame that has candidates, with these, best first; then the second, and so on.

    -1 fills up the rows of candidates.
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
    """Running maximum from the right over 41 samples, (T,) to (41,).

    As in the official program a sample that is not a number stays one and is skipped by the others.
    """
    samples = np.zeros(SAMPLE_COUNT)
    samples[: len(values)] = values
    highest = np.fmax.accumulate(samples[::-1])[::-1]
    return np.where(np.isnan(samples), np.nan, highest)
