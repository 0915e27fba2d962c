"""Tokens of a scene: what was detected, and where something stands, in the robot's frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Label of tokens that stand for a column of space with something in it.
STRUCTURE = "structure"


@dataclass(frozen=True, eq=False)
class SceneTokens:
    """A set of things around the robot; their order means nothing.

    Attributes:
        labels: N class names; :data:`STRUCTURE` for occupied columns.
        boxes: (N, 7) float32: x, y, z of the centre, length, width, height (metres), yaw (radians), in the
            robot's frame: x forward, y left, z up.
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
        """Number of tokens."""
        return len(self.labels)

    def __add__(self, other: SceneTokens) -> SceneTokens:
        """The tokens of both."""
        return SceneTokens(
            self.labels + other.labels,
            np.concatenate([self.boxes, other.boxes]),
            np.concatenate([self.scores, other.scores]),
        )

    def take(self, index: ArrayLike) -> SceneTokens:
        """Some of the tokens, or all in another order.

        Args:
            index: integers.
        """
        rows = np.asarray(index, np.int64)
        return SceneTokens(tuple(self.labels[i] for i in rows), self.boxes[rows], self.scores[rows])


def detection_tokens(boxes: ArrayLike, labels: Sequence[str], scores: ArrayLike | None = None) -> SceneTokens:
    """Tokens of detected objects.

    Args:
        boxes: (N, 7) as in :class:`SceneTokens`.
        labels: N class names.
        scores: (N,), 1 by default.
    """
    rows = np.asarray(boxes, np.float32).reshape(-1, 7)
    values = np.ones(len(rows), np.float32) if scores is None else np.asarray(scores, np.float32)
    return SceneTokens(tuple(labels), rows, values)


def structure_tokens(
    points: ArrayLike,
    *,
    cell_m: float = 4.0,
    range_m: float = 48.0,
    least_height_m: float = 0.5,
    least_points: int = 3,
    most: int = 96,
) -> SceneTokens:
    """Tokens of what stands on the ground, from a point cloud: one for each column that is not flat.

    A token's box has the mean of the points above the lowest 0.25 m of the column as its centre, twice their
    standard deviations along their main horizontal axis and across it as length and width, their extent as
    height, and the direction of that axis as yaw, in [0, pi). The score grows with the number of points.

    Args:
        points: (N, 3) or more columns, metres, in the robot's frame.
        cell_m: side of a column.
        range_m: columns centred farther away are left out.
        least_height_m: a column whose points extend less is ground.
        least_points: fewest points above the ground.
        most: tokens; the nearest are kept.

    Raises:
        ValueError: points of another shape or not finite, or a size that is not positive.
    """
    cloud = np.asarray(points, np.float64)
    if cloud.ndim != 2 or cloud.shape[1] < 3:
        raise ValueError(f"points must have shape (N, 3) or more columns, got {cloud.shape}")
    if cell_m <= 0 or range_m <= 0 or most < 1 or least_points < 1:
        raise ValueError("cell_m, range_m, least_points and most must be positive")
    if not np.isfinite(cloud[:, :3]).all():
        raise ValueError("points must be finite")
    # Sorted by place, so that sums do not depend on the order in which points came.
    cloud = cloud[:, :3][np.lexsort(cloud[:, :3].T)]
    cell = np.floor(cloud[:, :2] / cell_m).astype(np.int64)
    near = np.linalg.norm((cell + 0.5) * cell_m, axis=1) <= range_m
    cloud, cell = cloud[near], cell[near]
    _, column = np.unique(cell, axis=0, return_inverse=True)
    column = column.reshape(-1)
    count = int(column.max()) + 1 if len(column) else 0
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, column, cloud[:, 2])
    np.maximum.at(high, column, cloud[:, 2])
    above = cloud[:, 2] > low[column] + 0.25
    cloud, column = cloud[above], column[above]
    number = np.bincount(column, minlength=count)
    kept = np.flatnonzero((high - low >= least_height_m) & (number >= least_points))
    boxes = _column_boxes(cloud, column, number, high - low)[kept]
    scores = 1.0 - np.exp(-number[kept] / 20.0)
    nearest = np.argsort(np.hypot(boxes[:, 0], boxes[:, 1]), kind="stable")[:most]
    return SceneTokens(
        (STRUCTURE,) * len(nearest), boxes[nearest].astype(np.float32), scores[nearest].astype(np.float32)
    )


def _column_boxes(
    cloud: NDArray[np.float64],
    column: NDArray[np.int64],
    number: NDArray[np.int64],
    height: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(columns, 7) boxes around the points of each column, by their first and second moments."""
    count, total = len(number), np.maximum(number, 1)
    mean = np.stack([np.bincount(column, cloud[:, k], count) / total for k in range(3)], axis=1)
    offset = cloud[:, :2] - mean[column, :2]
    xx, yy, xy = (
        np.bincount(column, offset[:, i] * offset[:, j], count) / total for i, j in ((0, 0), (1, 1), (0, 1))
    )
    middle, spread = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
    yaw = np.mod(np.arctan2(2 * xy, xx - yy) / 2, np.pi)
    sides = [2 * np.sqrt(np.maximum(middle + sign * spread, 0.0)) for sign in (1, -1)]
    return np.column_stack([mean, *sides, np.where(number > 0, height, 0.0), yaw])
