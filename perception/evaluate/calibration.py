"""Whether a score is the share of boxes that are right, and a map of scores that makes it so.

The map of a class is Platt's: ``sigmoid(scale * logit(score) + bias)`` (Platt, "Probabilistic Outputs for
Support Vector Machines", 1999). It rises, so the order of a class's boxes, and its AP, stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perception.evaluate.box_table import Float64Array, Mask, Rows
from perception.evaluate.ranking import Ranking

BINS = 10
#: False boxes from this score on are counted.
FALSE_FROM = 0.3
#: Right and wrong boxes that a fit needs at least.
_LEAST = 10
_FOLDS, _STEPS, _CLIP = 5, 50, 1e-6


class ScoreMap(NamedTuple):
    """``sigmoid(scale * logit(score) + bias)``."""

    scale: float
    bias: float

    def __call__(self, scores: Float64Array) -> Float64Array:
        """Calibrated scores in [0, 1]."""
        return _sigmoid(self.scale * _logit(scores) + self.bias)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Scores of a class.

    Attributes:
        boxes: that were judged.
        right: of these.
        error: expected calibration error: mean over boxes of how far the mean score of their bin is from the
            share of right ones there (Guo et al., ICML 2017); NaN without boxes.
        false_per_frame: wrong boxes from a score of 0.3 on.
        bins: (10, 3) float64: boxes, mean score and share of right ones of scores 0-0.1, ..., 0.9-1.
        fitted: the map; None where there are fewer than 10 right or 10 wrong boxes.
        error_fitted, false_fitted: the same of calibrated scores, each frame by a map of the others (five
            folds); NaN without a fit.
    """

    boxes: int
    right: int
    error: float
    false_per_frame: float
    bins: Float64Array
    fitted: ScoreMap | None
    error_fitted: float
    false_fitted: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "boxes": self.boxes,
            "right": self.right,
            "ECE": _plain(self.error),
            "false_per_frame": _plain(self.false_per_frame),
            "bins": [[_plain(value) for value in row] for row in self.bins.tolist()],
            "scale_bias": None if self.fitted is None else list(self.fitted),
            "ECE_fitted": _plain(self.error_fitted),
            "false_per_frame_fitted": _plain(self.false_fitted),
        }


def measure_reliability(rankings: Mapping[str, Ranking], frames: int) -> dict[str, Reliability]:
    """Reliability by class.

    Args:
        rankings: of the classes, scores in [0, 1].
        frames: number of frames.

    Raises:
        ValueError: a score beyond [0, 1].
    """
    return {name: _of_class(ranking, frames) for name, ranking in rankings.items()}


def _of_class(ranking: Ranking, frames: int) -> Reliability:
    score, right = ranking.score, ranking.right
    if len(score) and not (score.min() >= 0 and score.max() <= 1):
        raise ValueError(f"scores must be in [0, 1] to be calibrated, got {score.min()} to {score.max()}")
    fitted = fit_map(score, right)
    crossed = _crossed(ranking) if fitted is not None else None
    return Reliability(
        len(score),
        int(right.sum()),
        calibration_error(score, right),
        _false(score, right, frames),
        reliability_bins(score, right),
        fitted,
        math.nan if crossed is None else calibration_error(crossed, right),
        math.nan if crossed is None else _false(crossed, right, frames),
    )


def fit_map(score: Float64Array, right: Mask) -> ScoreMap | None:
    """The map of the greatest likelihood with a weak prior of no change; None of too few boxes.

    Args:
        score: (M,) float64 in [0, 1].
        right: (M,) bool.
    """
    if min(int(right.sum()), int((~right).sum())) < _LEAST:
        return None
    logit = _logit(score)
    columns = np.column_stack([logit, np.ones(len(logit))])
    start = np.array([1.0, 0.0])
    found = start.copy()
    for _ in range(_STEPS):
        chance = _sigmoid(columns @ found)
        gradient = columns.T @ (chance - right) + (found - start)
        weight = np.maximum(chance * (1 - chance), 1e-9)
        step = np.linalg.solve((columns * weight[:, None]).T @ columns + np.eye(2), gradient)
        # Newton's steps of a convex loss, kept short enough not to leap over its valley.
        found = found - step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-10:
            break
    scale, bias = found.tolist()
    return ScoreMap(scale, bias) if scale > 0 else None


def _crossed(ranking: Ranking) -> Float64Array:
    """Scores calibrated by the other frames."""
    made: Float64Array = ranking.score.copy()
    fold: Rows = ranking.frame % _FOLDS
    for number in range(_FOLDS):
        own = fold == number
        fitted = fit_map(ranking.score[~own], ranking.right[~own])
        if fitted is not None:
            made[own] = fitted(ranking.score[own])
    return made


def reliability_bins(score: Float64Array, right: Mask) -> Float64Array:
    """(10, 3) float64: boxes, mean score, share of right ones by score; NaN in bins without boxes."""
    place = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, weights=score, minlength=BINS) / count
        share = np.bincount(place, weights=right.astype(np.float64), minlength=BINS) / count
    return np.column_stack([count, mean, share])


def calibration_error(score: Float64Array, right: Mask) -> float:
    """Expected calibration error, in [0, 1]; NaN without boxes."""
    bins = reliability_bins(score, right)
    filled = bins[bins[:, 0] > 0]
    if len(filled) == 0:
        return math.nan
    return float((filled[:, 0] * np.abs(filled[:, 1] - filled[:, 2])).sum() / filled[:, 0].sum())


def score_maps(reliability: Mapping[str, Reliability]) -> dict[str, ScoreMap]:
    """The maps of the classes that have one."""
    return {name: found.fitted for name, found in reliability.items() if found.fitted is not None}


def _false(score: Float64Array, right: Mask, frames: int) -> float:
    return float(((score >= FALSE_FROM) & ~right).sum()) / max(frames, 1)


def _logit(score: Float64Array) -> Float64Array:
    inside = np.clip(score, _CLIP, 1 - _CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside), np.float64)


def _sigmoid(value: Float64Array) -> Float64Array:
    return np.asarray(1 / (1 + np.exp(-value)), np.float64)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
