"""Are sights of one object the nearest: mean average precision and recall@1 of re-identification."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.types import FloatArray


class Retrieval(NamedTuple):
    """How well sights find others of the same object among all of their scene.

    Attributes:
        mean_ap: mean average precision of the questions; NaN without any.
        recall_at_1: share of the questions whose nearest sight is one of the same object.
        chance: mean share of right answers among those that there are: what a random order finds first.
        questions: sights with at least one right and one wrong answer.
    """

    mean_ap: float
    recall_at_1: float
    chance: float
    questions: int


def retrieval(
    distances: FloatArray,
    objects: npt.NDArray[Any],
    scenes: npt.NDArray[Any],
    times_s: npt.NDArray[np.float64],
    labels: npt.NDArray[Any] | None = None,
    *,
    apart_s: float = 0.5,
) -> Retrieval:
    """Ask with each sight for the others of its object.

    Args:
        distances: (N, N), from each sight (row) to each other.
        objects: (N,) who it is; scenes: (N,) where; times_s: (N,) when.
        labels: (N,) classes, to look among sights of the same class only; None: among all.
        apart_s: sights of the same scene that are nearer in time than this are no answers: they are almost
            the same picture.

    Returns:
        The means over all questions.
    """
    precisions, firsts, chances = [], [], []
    for row in range(len(objects)):
        asked = (scenes == scenes[row]) & (np.abs(times_s - times_s[row]) >= apart_s - 1e-9)
        if labels is not None:
            asked &= labels == labels[row]
        right = objects[asked] == objects[row]
        if right.all() or not right.any():
            continue
        ranked = right[np.argsort(distances[row, asked], kind="stable")]
        found = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
        precisions.append(float(found[ranked].mean()))
        firsts.append(bool(ranked[0]))
        chances.append(float(right.mean()))
    if not precisions:
        return Retrieval(np.nan, np.nan, np.nan, 0)
    return Retrieval(
        float(np.mean(precisions)), float(np.mean(firsts)), float(np.mean(chances)), len(precisions)
    )


def vector_distances(vectors: FloatArray) -> FloatArray:
    """(N, N) float32, one minus the product of each two of (N, D) unit vectors."""
    distances: FloatArray = 1.0 - vectors @ vectors.T
    return distances


def size_distances(boxes: FloatArray) -> FloatArray:
    """(N, N) float32: how far the logarithms of length, width and height of (N, 7) boxes lie apart."""
    sizes = np.log(np.maximum(boxes[:, 3:6], 1e-3))
    distances: FloatArray = np.linalg.norm(sizes[:, None] - sizes[None], axis=2).astype(np.float32)
    return distances
