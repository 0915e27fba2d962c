"""Re-identification: mean average precision and recall@1 of finding other observations of an object."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.types import FloatArray


class Retrieval(NamedTuple):
    """Retrieval quality of observations within their scenes.

    Attributes:
        mean_ap: mean average precision of the queries; NaN without any.
        recall_at_1: share of the queries whose nearest observation shows the same object.
        chance: expected recall@1 of a random order.
        questions: observations with at least one right and one wrong answer.
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
    """Query each observation for the other observations of its object.

    Args:
        distances: (N, N), from each observation (row) to every other.
        objects: (N,) object ids; scenes: (N,) scene ids; times_s: (N,) seconds.
        labels: (N,) classes, to search within the same class only; None: search among all.
        apart_s: observations of the same scene that are closer in time are no answers, because they look
            almost identical.

    Returns:
        Means over all queries.
    """
    precisions, firsts, chances = [], [], []
    for row in range(len(objects)):
        candidates = (scenes == scenes[row]) & (np.abs(times_s - times_s[row]) >= apart_s - 1e-9)
        if labels is not None:
            candidates &= labels == labels[row]
        right = objects[candidates] == objects[row]
        if right.all() or not right.any():
            continue
        ranked = right[np.argsort(distances[row, candidates], kind="stable")]
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
    """Return (N, N) float32 distances, one minus the dot product, of (N, D) unit vectors."""
    distances: FloatArray = 1.0 - vectors @ vectors.T
    return distances


def size_distances(boxes: FloatArray) -> FloatArray:
    """Return (N, N) float32 distances of the logarithmic sizes of (N, 7) boxes."""
    sizes = np.log(np.maximum(boxes[:, 3:6], 1e-3))
    distances: FloatArray = np.linalg.norm(sizes[:, None] - sizes[None], axis=2).astype(np.float32)
    return distances
