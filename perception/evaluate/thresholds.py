"""Reporting thresholds by class, chosen on labelled frames.

Average precision covers every score, but a user sees one list of boxes. The F-measure (van Rijsbergen,
Information Retrieval, 1979) combines precision and recall into
``(1 + beta²) found / ((1 + beta²) found + beta² missed + false)``. With beta = 2, a missed object weighs four
times as much as a false positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perception.boxes import rotated_iou_3d
from perception.evaluate.kitti.protocol import NEIGHBOURS
from perception.types import Boxes3D, Detections


@dataclass(frozen=True)
class ScoreChoice:
    """A threshold of a class, with its results on the frames it was chosen on.

    Attributes:
        threshold: least score.
        found: labels with a detection of at least this score.
        false: detections of at least this score without a label.
        missed: labels without such a detection.
        f_measure: in [0, 1].
    """

    threshold: float
    found: int
    false: int
    missed: int
    f_measure: float


def choose_thresholds(
    frames: Iterable[tuple[Detections, Boxes3D]],
    classes: Sequence[str],
    *,
    beta: float = 2.0,
    min_overlap: float = 0.5,
    step: float = 0.05,
) -> dict[str, ScoreChoice]:
    """Choose the threshold of each class with the greatest F-measure; the lowest among equals.

    Labels of any difficulty count. In score order, a detection takes the free label of its class that it
    overlaps most. A detection that overlaps only a neighbouring class in KITTI's sense (a van, for cars) is
    ignored.

    Args:
        frames: detections, from low scores on, and labels.
        classes: classes to choose for; classes without a found label are dropped.
        beta: weight of recall against precision.
        min_overlap: 3D IoU that a match exceeds.
        step: thresholds are multiples of it.

    Raises:
        ValueError: ``beta`` or ``step`` is not positive, or ``min_overlap`` or ``step`` is not below 1.
    """
    if not (0 < beta < math.inf and 0 < step < 1 and 0 <= min_overlap < 1):
        raise ValueError(
            f"expected beta > 0, 0 < step < 1 and 0 <= min_overlap < 1, got {beta}, {step}, {min_overlap}"
        )
    given = list(frames)
    chosen = {}
    for name in classes:
        matches = [_matches(found, truth, name, min_overlap) for found, truth in given]
        labels = sum(truth.labels.count(name) for _, truth in given)
        if labels:
            scores, right = (np.concatenate(part) for part in zip(*matches, strict=True))
            best = _best(scores, right, labels, beta, step)
            if best.found:
                chosen[name] = best
    return chosen


def _best(
    scores: npt.NDArray[np.float64], right: npt.NDArray[np.bool_], labels: int, beta: float, step: float
) -> ScoreChoice:
    choices = []
    for number in range(1, math.ceil(1 / step - 1e-9)):
        threshold = round(number * step, 6)
        reported = scores >= threshold
        found, false = int(right[reported].sum()), int((~right[reported]).sum())
        weight = beta**2
        measure = (1 + weight) * found / ((1 + weight) * found + weight * (labels - found) + false)
        choices.append(ScoreChoice(threshold, found, false, labels - found, measure))
    return max(choices, key=lambda choice: (choice.f_measure, -choice.threshold))


def _matches(
    found: Detections, truth: Boxes3D, name: str, min_overlap: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the scores of a class's counting detections, and whether each found a label."""
    rows = [row for row, label in enumerate(found.labels) if label == name]
    wanted = _overlaps(found, rows, truth, name)
    similar = (
        _overlaps(found, rows, truth, NEIGHBOURS.get(name.lower(), "")).max(axis=1, initial=0.0) > min_overlap
    )
    free = np.ones(wanted.shape[1], dtype=np.bool_)
    scores, right = [], []
    for place in np.argsort(-found.scores[rows], kind="stable"):
        overlaps = np.where(free, wanted[place], -1.0)
        best = int(overlaps.argmax()) if overlaps.size else -1
        matched = best >= 0 and bool(overlaps[best] > min_overlap)
        if matched:
            free[best] = False
        elif similar[place]:
            continue
        scores.append(float(found.scores[rows][place]))
        right.append(matched)
    return np.array(scores, dtype=np.float64), np.array(right, dtype=np.bool_)


def _overlaps(found: Detections, rows: list[int], truth: Boxes3D, name: str) -> npt.NDArray[np.float64]:
    columns = [column for column, label in enumerate(truth.labels) if label.lower() == name.lower()]
    if not rows or not columns:
        return np.zeros((len(rows), len(columns)))
    return np.asarray(rotated_iou_3d(found.boxes[rows], truth.boxes[columns]), dtype=np.float64)
