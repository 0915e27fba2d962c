"""Tokens of a scene: detected objects and occupied columns in the robot's frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_core.columns.api import standing_columns

#: Label of tokens for occupied columns.
STRUCTURE = "structure"


@dataclass(frozen=True, eq=False)
class SceneTokens:
    """Set of tokens around the robot, in any order.

    Attributes:
        labels: N class names; :data:`STRUCTURE` for occupied columns.
        boxes: (N, 7) float32: x, y, z of the centre, length, width, height (metres), yaw (radians), in
            the robot's frame: x forward, y left, z up.
        scores: (N,) float32 from 0 to 1.

    Raises:
        ValueError: shapes differ, numbers are not finite, or a size is negative.
    """

    labels: tuple[str, ...]
    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]

    def __post_init__(self) -> None:
        boxes = np.asarray(self.boxes, np.float32).reshape(-1, 7)
        scores = np.asarray(self.scores, np.float32).reshape(-1)
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "boxes", boxes)
        object.__setattr__(self, "scores", scores)
        if not len(self.labels) == len(boxes) == len(scores):
            raise ValueError(
                f"labels, boxes and scores must be as many, got {len(self.labels)}, {len(boxes)} and"
                f" {len(scores)}"
            )
        if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
            raise ValueError("boxes and scores must be finite")
        if (boxes[:, 3:6] < 0).any():
            raise ValueError("sizes in boxes must not be negative")

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.labels)

    def __add__(self, other: SceneTokens) -> SceneTokens:
        """Return the tokens of both."""
        return SceneTokens(
            self.labels + other.labels,
            np.concatenate([self.boxes, other.boxes]),
            np.concatenate([self.scores, other.scores]),
        )

    def take(self, index: ArrayLike) -> SceneTokens:
        """Return the tokens at these indexes."""
        rows = np.asarray(index, np.int64)
        return SceneTokens(tuple(self.labels[i] for i in rows), self.boxes[rows], self.scores[rows])


def detection_tokens(boxes: ArrayLike, labels: Sequence[str], scores: ArrayLike | None = None) -> SceneTokens:
    """Return tokens of detected objects.

    Args:
        boxes: (N, 7) as in :class:`SceneTokens`.
        labels: N class names.
        scores: (N,), by default 1.
    """
    rows = np.asarray(boxes, np.float32).reshape(-1, 7)
    values = np.ones(len(rows), np.float32) if scores is None else np.asarray(scores, np.float32)
    return SceneTokens(tuple(labels), rows, values)


def structure_tokens(points: ArrayLike, **options: Any) -> SceneTokens:
    """Return tokens of columns above the ground, from :func:`sparse_core.columns.api.standing_columns`.

    Args:
        points: (N, 3) or more columns, in metres in the robot's frame.
        **options: options of that function.

    Raises:
        ValueError: the points are invalid, or a size is not positive.
    """
    return column_tokens(*standing_columns(points, **options))


def column_tokens(boxes: ArrayLike, scores: ArrayLike) -> SceneTokens:
    """Return tokens of (N, 7) boxes and (N,) scores of :class:`sparse_core.columns.api.Columns`."""
    rows = np.asarray(boxes, np.float32).reshape(-1, 7)
    return SceneTokens((STRUCTURE,) * len(rows), rows, np.asarray(scores, np.float32))
