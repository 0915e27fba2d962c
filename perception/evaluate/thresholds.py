"""Reporting thresholds by class, chosen on labelled frames.

Average precision covers every score, but a user sees one list of boxes. The F-measure (van Rijsbergen,
Information Retrieval, 1979) combines precision and recall into
``(1 + beta²) found / ((1 + beta²) found + beta² missed + false)``. With beta = 2, a missed object weighs four
times as much as a false positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from perception.evaluate.ranking import Ranking


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
    rankings: Mapping[str, Ranking], *, beta: float = 2.0, step: float = 0.05
) -> dict[str, ScoreChoice]:
    """Choose the threshold of each class with the greatest F-measure; the lowest among equals.

    The boxes protocol decides what is found: an IoU above 0.5 in space, above 0.3 for small classes, whose
    boxes can rarely be exact (:class:`~perception.evaluate.boxes.judge.BoxesJudge`).

    Args:
        rankings: detections, from low scores on, and labels by class; classes without a found label are
            dropped.
        beta: weight of recall against precision.
        step: thresholds are multiples of it.

    Raises:
        ValueError: ``beta`` or ``step`` is not positive, or ``step`` is not below 1.
    """
    if not (0 < beta < math.inf and 0 < step < 1):
        raise ValueError(f"expected beta > 0 and 0 < step < 1, got {beta} and {step}")
    best = {name: _best(ranking, beta, step) for name, ranking in rankings.items()}
    return {name: choice for name, choice in best.items() if choice.found}


def _best(ranking: Ranking, beta: float, step: float) -> ScoreChoice:
    labels, weight, choices = len(ranking.label_frame), beta**2, []
    for number in range(1, math.ceil(1 / step - 1e-9)):
        threshold = round(number * step, 6)
        reported = ranking.right[ranking.score >= threshold]
        found, false = int(reported.sum()), int((~reported).sum())
        whole = (1 + weight) * found + weight * (labels - found) + false
        measure = (1 + weight) * found / whole if whole else 0.0
        choices.append(ScoreChoice(threshold, found, false, labels - found, measure))
    return max(choices, key=lambda choice: (choice.f_measure, -choice.threshold))
