"""Importance of memories, from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.config import PARTS, ImportanceWeights
from memory.wording.reasons import ScoreReason


@dataclass(frozen=True, eq=False)
class Importance:
    """Importance of ``N`` memories.

    Attributes:
        total: (N,) float64 from 0 to 1.
        parts: (N,) float64 from 0 to 1 by name: novelty, reward, uncertainty, rarity, mark.
        contributions: (N,) float64 by the same names: share of each part in the total.
    """

    total: NDArray[np.float64]
    parts: Mapping[str, NDArray[np.float64]]
    contributions: Mapping[str, NDArray[np.float64]]

    def explain(self, row: int = 0) -> ScoreReason:
        """Return the importance of one memory and its parts, the largest first."""
        added = {name: float(values[row]) for name, values in self.contributions.items()}
        names = sorted((name for name in added if added[name] > 0.0), key=lambda name: -added[name])
        parts = {name: (float(self.parts[name][row]), added[name]) for name in names}
        return ScoreReason(total=float(self.total[row]), parts=parts)


def importance(
    *,
    nearest_similarity: ArrayLike,
    reward: ArrayLike = 0.0,
    uncertainty: ArrayLike = 0.0,
    rarity: ArrayLike = 0.0,
    marked: ArrayLike = False,
    weights: ImportanceWeights | None = None,
) -> Importance:
    """Compute importance. Arguments are numbers or (N,) arrays, which are broadcast.

    Args:
        nearest_similarity: cosine similarity to the most similar known memory; NaN if there is none.
        reward: any finite number; good and bad outcomes count alike.
        uncertainty: from 0 to 1.
        rarity: from 0 to 1, see :func:`rarity_of`.
        marked: True for marked memories.
        weights: weights of the parts.

    Raises:
        ValueError: a number is out of range, or shapes do not match.
    """
    weights = weights or ImportanceWeights()
    similarity, outcome, doubt, rare, mark = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (nearest_similarity, reward, uncertainty)),
        np.atleast_1d(np.asarray(rarity, dtype=np.float64)),
        np.atleast_1d(np.asarray(marked, dtype=bool)),
    )
    if similarity.ndim != 1:
        raise ValueError(f"arguments must be numbers or one-dimensional, got shape {similarity.shape}")
    for name, values, low, high in (
        ("nearest_similarity", similarity[~np.isnan(similarity)], -1.001, 1.001),
        ("reward", outcome, -np.finfo(np.float64).max, np.finfo(np.float64).max),
        ("uncertainty", doubt, 0.0, 1.0),
        ("rarity", rare, 0.0, 1.0),
    ):
        wrong = ~((values >= low) & (values <= high))
        if wrong.any():
            raise ValueError(f"{name} is out of range or not finite: {values[wrong][0]}")
    parts = {
        "novelty": np.clip(1.0 - np.nan_to_num(similarity, nan=0.0), 0.0, 1.0),
        "reward": -np.expm1(-np.abs(outcome) / weights.reward_scale),
        "uncertainty": doubt.astype(np.float64),
        "rarity": rare.astype(np.float64),
        "mark": mark.astype(np.float64),
    }
    scale = sum(getattr(weights, name) for name in PARTS)
    contributions = {name: parts[name] * (getattr(weights, name) / scale) for name in PARTS}
    base = np.clip(sum(contributions.values(), np.zeros(len(similarity))), 0.0, 1.0)
    contributions["mark"] = weights.mark * parts["mark"] * (1.0 - base)
    return Importance(np.clip(base + contributions["mark"], 0.0, 1.0), parts, contributions)


def rarity_of(count: int, seen: int, classes: int) -> float:
    """Return the rarity of a label from 0 to 1: minus the log of its smoothed frequency, divided by the
    maximum.

    With ``seen`` memories of ``classes`` labels, a label with ``count`` memories has the frequency ``(count +
    1) / (seen + classes)``. The rarity of a new label is 1, that of the only label 0.

    Args:
        count: number of memories with the label.
        seen: number of all memories.
        classes: number of labels, including this one.
    """
    size = seen + classes
    if size <= 1:
        return 1.0
    return min(max(-math.log((count + 1) / size) / math.log(size), 0.0), 1.0)
