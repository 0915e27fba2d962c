"""Calibration of scores: measured reliability, and a fitted map from scores to probabilities.

The map of a class is Platt's, ``sigmoid(scale * logit(score) + bias)`` (Platt, "Probabilistic Outputs for
Support Vector Machines", 1999). It is increasing, so the order of boxes and the AP do not change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perception.evaluate.box_table import Float64Array, Mask, Rows, finite_or_none
from perception.evaluate.ranking import Ranking

BINS = 10
#: Least score of a counted false positive.
FALSE_FROM = 0.3
#: Least number of right and of wrong boxes for a fit.
_LEAST = 10
_FOLDS, _STEPS, _CLIP = 5, 50, 1e-6


class ScoreMap(NamedTuple):
    """Platt map ``sigmoid(scale * logit(score) + bias)``."""

    scale: float
    bias: float

    def __call__(self, scores: Float64Array) -> Float64Array:
        """Return calibrated scores in [0, 1]."""
        return _sigmoid(self.scale * _logit(scores) + self.bias)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Reliability of the scores of a class.

    Attributes:
        boxes: evaluated boxes.
        right: matching boxes.
        error: expected calibration error, the mean gap per bin between score and share of right boxes,
            weighted by boxes (Guo et al., ICML 2017); NaN without boxes.
        false_per_frame: false positives with a score of at least 0.3.
        bins: (10, 3) float64: boxes, mean score and share of right boxes for scores 0-0.1, ..., 0.9-1.
        fitted: the map; None with fewer than 10 right or 10 wrong boxes.
        error_fitted, false_fitted: the same for calibrated scores, cross-validated over five blocks of
            consecutive frames, because neighbouring frames are alike; NaN without a map.
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
        """Return plain values for JSON."""
        return {
            "boxes": self.boxes,
            "right": self.right,
            "ECE": finite_or_none(self.error),
            "false_per_frame": finite_or_none(self.false_per_frame),
            "bins": [[finite_or_none(value) for value in row] for row in self.bins.tolist()],
            "scale_bias": None if self.fitted is None else list(self.fitted),
            "ECE_fitted": finite_or_none(self.error_fitted),
            "false_per_frame_fitted": finite_or_none(self.false_fitted),
        }


def measure_reliability(rankings: Mapping[str, Ranking], frames: int) -> dict[str, Reliability]:
    """Measure the reliability of each class, for scores in [0, 1].

    Raises:
        ValueError: a score is outside [0, 1].
    """
    return {name: _of_class(ranking, frames) for name, ranking in rankings.items()}


def _of_class(ranking: Ranking, frames: int) -> Reliability:
    score, right = ranking.score, ranking.right
    if len(score) and not (score.min() >= 0 and score.max() <= 1):
        raise ValueError(f"calibration needs scores in [0, 1], got {score.min()} to {score.max()}")
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
    """Fit the map by maximum likelihood with a weak prior of no change; None with too few boxes.

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
        # Newton steps on a convex loss, bounded so that they do not overshoot.
        found = found - step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-10:
            break
    scale, bias = found.tolist()
    return ScoreMap(scale, bias) if scale > 0 else None


def _crossed(ranking: Ranking) -> Float64Array:
    """Return scores calibrated by a map of the other blocks of frames."""
    made: Float64Array = ranking.score.copy()
    fold: Rows = ranking.frame * _FOLDS // (1 + ranking.frame.max(initial=0))
    for number in range(_FOLDS):
        own = fold == number
        fitted = fit_map(ranking.score[~own], ranking.right[~own])
        if fitted is not None:
            made[own] = fitted(ranking.score[own])
    return made


def reliability_bins(score: Float64Array, right: Mask) -> Float64Array:
    """Return (10, 3) float64: boxes, mean score and share of right boxes per bin; NaN in empty bins."""
    place = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, weights=score, minlength=BINS) / count
        share = np.bincount(place, weights=right.astype(np.float64), minlength=BINS) / count
    return np.column_stack([count, mean, share])


def calibration_error(score: Float64Array, right: Mask) -> float:
    """Return the expected calibration error in [0, 1]; NaN without boxes."""
    bins = reliability_bins(score, right)
    filled = bins[bins[:, 0] > 0]
    if len(filled) == 0:
        return math.nan
    return float((filled[:, 0] * np.abs(filled[:, 1] - filled[:, 2])).sum() / filled[:, 0].sum())


def _false(score: Float64Array, right: Mask, frames: int) -> float:
    return float(((score >= FALSE_FROM) & ~right).sum()) / max(frames, 1)


def _logit(score: Float64Array) -> Float64Array:
    inside = np.clip(score, _CLIP, 1 - _CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside), np.float64)


def _sigmoid(value: Float64Array) -> Float64Array:
    return np.asarray(1 / (1 + np.exp(-value)), np.float64)
