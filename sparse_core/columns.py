"""What stands on the ground in a point cloud, column by column, in numpy: perception and memory share it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Metres above the lowest point of a column that are its ground.
_GROUND_M = 0.25


class Columns(NamedTuple):
    """Columns of space in which something stands, the nearest first.

    Attributes:
        boxes: (N, 7) float32: mean of the points above the ground (x, y, z), twice their standard deviations
            along their main horizontal axis and across it, the height of the column (metres), and the
            direction of that axis in [0, pi) (radians); in the frame of the points.
        scores: (N,) float32 from 0 to 1, rising with the number of points.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]


def standing_columns(
    points: ArrayLike,
    *,
    cell_m: float = 4.0,
    range_m: float = 48.0,
    least_height_m: float = 0.5,
    least_points: int = 3,
    most: int = 96,
) -> Columns:
    """The columns of a point cloud that are not flat.

    Args:
        points: (N, 3) or more columns, metres, z up; their order means nothing.
        cell_m: side of a column.
        range_m: columns centred farther away are left out.
        least_height_m: a column whose points extend less is ground.
        least_points: fewest points above the ground.
        most: columns; the nearest are kept.

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
    near = np.linalg.norm((np.floor(cloud[:, :2] / cell_m) + 0.5) * cell_m, axis=1) <= range_m
    cloud = cloud[near, :3]
    # Sorted by place, so that sums do not depend on the order in which points came.
    cloud = cloud[np.lexsort(cloud.T)]
    cell = np.floor(cloud[:, :2] / cell_m).astype(np.int64)
    # One number a cell, in the order of its rows: none is farther than this.
    reach = int(range_m / cell_m) + 2
    _, column = np.unique((cell[:, 0] + reach) * (2 * reach + 1) + cell[:, 1] + reach, return_inverse=True)
    column = column.reshape(-1)
    count = int(column.max()) + 1 if len(column) else 0
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, column, cloud[:, 2])
    np.maximum.at(high, column, cloud[:, 2])
    above = cloud[:, 2] > low[column] + _GROUND_M
    cloud, column = cloud[above], column[above]
    number = np.bincount(column, minlength=count)
    kept = np.flatnonzero((high - low >= least_height_m) & (number >= least_points))
    boxes = _boxes(cloud, column, number, high - low)[kept]
    scores = 1.0 - np.exp(-number[kept] / 20.0)
    nearest = np.argsort(np.hypot(boxes[:, 0], boxes[:, 1]), kind="stable")[:most]
    return Columns(boxes[nearest].astype(np.float32), scores[nearest].astype(np.float32))


def _boxes(
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
