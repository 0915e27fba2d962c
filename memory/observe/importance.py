"""How much a memory matters, from 0 to 1, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.config import PARTS, ImportanceWeights
from memory.wording.reasons import Scored


@dataclass(frozen=True, eq=False)
class Importance:
    """Importance of ``N`` memories.

    Attributes:
        total: (N,) float64 from 0 to 1.
        parts: by name, (N,) float64 from 0 to 1 each: novelty, reward, uncertainty, rarity, mark.
        contributions: by the same names, (N,) float64: what each adds to the total.
    """

    total: NDArray[np.float64]
    parts: Mapping[str, NDArray[np.float64]]
    contributions: Mapping[str, NDArray[np.float64]]

    def explain(self, row: int = 0) -> Scored:
        """The total of one memory, and what added to it, the most first."""
        added = {name: float(values[row]) for name, values in self.contributions.items()}
        names = sorted((name for name in added if added[name] > 0.0), key=lambda name: -added[name])
        parts = {name: (float(self.parts[name][row]), added[name]) for name in names}
        return Scored(total=float(self.total[row]), parts=parts)


def importance(
    *,
    nearest_similarity: ArrayLike,
    reward: ArrayLike = 0.0,
    uncertainty: ArrayLike = 0.0,
    rarity: ArrayLike = 0.0,
    marked: ArrayLike = False,
    weights: ImportanceWeights | None = None,
) -> Importance:
    """Score memories; all arguments are numbers or (N,) arrays, broadcast against each other.

    Args:
        nearest_similarity: cosine to the most similar memory known here; NaN where nothing is known.
        reward: any finite number; good and bad outcomes count alike.
        uncertainty: from 0 to 1.
        rarity: from 0 to 1, see :func:`rarity_of`.
        marked: by the user.
        weights: the defaults where not given.

    Raises:
        ValueError: a number out of its range, or shapes that do not fit.
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
    """How seldom a label is: minus the log of its smoothed frequency, as a share of the largest there is.

    With ``seen`` memories of ``classes`` labels so far, a label seen ``count`` times has frequency
    ``(count + 1) / (seen + classes)``: rarity is 1 for a label never seen and 0 where there is no other.

    Args:
        count: memories that have it.
        seen: all memories.
        classes: labels that there are, this one included.

    Returns:
        From 0 to 1.
    """
    size = seen + classes
    if size <= 1:
        return 1.0
    return min(max(-math.log((count + 1) / size) / math.log(size), 0.0), 1.0)
