"""Recall of place recognition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class PlaceRecall:
    """Recall of place recognition.

    Attributes:
        recall: share of the answerable queries whose best match is within the radius.
        queries: number of held-out frames.
        answerable: number of held-out frames with another frame within the radius.
        distance_m: (queries,) float64 distance from each held-out frame to its best match.
    """

    recall: float
    queries: int
    answerable: int
    distance_m: NDArray[np.float64]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers without the distances."""
        return {
            "recall_at_1": self.recall,
            "queries": self.queries,
            "answerable": self.answerable,
            "median_distance_m": float(np.median(self.distance_m)) if self.queries else None,
        }


def place_recall(
    poses: ArrayLike, vectors: ArrayLike, radius_m: float = 0.5, *, every: int = 5, gap: int = 0
) -> PlaceRecall:
    """Compute Recall@1 of held-out frames among the others.

    Args:
        poses: (N, 4, 4) world_from_camera (or robot), or (N, 2) or (N, 3) positions, in metres.
        vectors: (N, dim), compared by cosine similarity; the first wins ties.
        radius_m: maximum distance of a correct match.
        every: hold out each ``every``-th frame.
        gap: number of frames before and after a query that are excluded.

    Raises:
        ValueError: shapes do not match, numbers are not finite, or there are too few frames.
    """
    places, rows = np.asarray(poses, np.float64), np.asarray(vectors, np.float64)
    if places.shape[1:] == (4, 4):
        places = places[:, :3, 3]
    if places.ndim != 2 or places.shape[1] not in (2, 3):
        raise ValueError(f"poses must have shape (N, 4, 4), (N, 3) or (N, 2), got {places.shape}")
    if rows.ndim != 2 or len(rows) != len(places):
        raise ValueError(f"vectors must have shape ({len(places)}, dim), got {rows.shape}")
    if not (np.isfinite(places).all() and np.isfinite(rows).all()):
        raise ValueError("poses and vectors must be finite")
    if every < 2 or len(rows) < every:
        raise ValueError(f"every must be from 2 to the number of frames, got {every} of {len(rows)} frames")
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(norm > 0, norm, 1.0)
    held = np.arange(len(rows)) % every == every - 1
    query, known = np.flatnonzero(held), np.flatnonzero(~held)
    score = rows[query] @ rows[known].T
    apart = np.linalg.norm(places[query, None] - places[None, known], axis=2)
    score[np.abs(query[:, None] - known) <= gap] = -np.inf
    apart[np.abs(query[:, None] - known) <= gap] = np.inf
    possible = apart.min(axis=1) <= radius_m
    distance = apart[np.arange(len(query)), score.argmax(axis=1)]
    right = distance[possible] <= radius_m
    return PlaceRecall(float(right.mean()) if len(right) else 0.0, len(query), int(possible.sum()), distance)
