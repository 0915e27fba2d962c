"""Columns of a point cloud with objects above the ground, in numpy; shared by perception and memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Thickness of the ground above the lowest point of a column, in metres.
_GROUND_M = 0.25
#: Most cells to count; with more, values are sorted instead.
_FEW_CELLS = 1 << 20


class Columns(NamedTuple):
    """Columns of space with points above the ground, nearest first.

    Attributes:
        boxes: (N, 7) float32 in the frame of the points: mean of the points above the ground (x, y, z);
            twice their standard deviations along and across their main horizontal axis; the height of the
            column (metres); the direction of that axis in [0, pi) (radians).
        scores: (N,) float32 from 0 to 1, increasing with the number of points.
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
    """Return the columns of a point cloud that are not flat.

    Args:
        points: (N, 3) or more columns, metres, z up, in any order.
        cell_m: side of a column.
        range_m: largest distance of a column's centre.
        least_height_m: a column of smaller vertical extent is ground.
        least_points: fewest points above the ground.
        most: largest number of columns; the nearest are kept.

    Raises:
        ValueError: points of another shape or not finite, or a size that is not positive.
    """
    given = np.asarray(points)
    if given.ndim != 2 or given.shape[1] < 3:
        raise ValueError(f"points must have shape (N, 3) or more columns, got {given.shape}")
    if cell_m <= 0 or range_m <= 0 or most < 1 or least_points < 1:
        raise ValueError("cell_m, range_m, least_points and most must be positive")
    places = np.ascontiguousarray(given[:, :3].T)
    if not np.isfinite(places).all():
        raise ValueError("points must be finite")
    # Number the cells within reach, row by row.
    reach = int(range_m / cell_m) + 2
    row, line = np.floor(np.divide(places[:2], cell_m, dtype=np.float64))
    inside = np.flatnonzero(np.hypot((row + 0.5) * cell_m, (line + 0.5) * cell_m) <= range_m)
    place = (row[inside].astype(np.int64) + reach) * (2 * reach + 1) + line[inside].astype(np.int64) + reach
    column = _rank_values(place, (2 * reach + 1) ** 2)
    z = places[2, inside].astype(np.float64)
    count = int(column.max()) + 1 if len(column) else 0
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, column, z)
    np.maximum.at(high, column, z)
    above = np.flatnonzero(z > low[column] + _GROUND_M)
    standing, column = places[:, inside[above]], column[above]
    # Sort by position, so that sums do not depend on the order of the points.
    order = _order_by_position(standing)
    cloud, column = standing[:, order].T.astype(np.float64), column[order]
    number = np.bincount(column, minlength=count)
    kept = np.flatnonzero((high - low >= least_height_m) & (number >= least_points))
    boxes = _boxes(cloud, column, number, high - low)[kept]
    scores = 1.0 - np.exp(-number[kept] / 20.0)
    nearest = np.argsort(np.hypot(boxes[:, 0], boxes[:, 1]), kind="stable")[:most]
    return Columns(boxes[nearest].astype(np.float32), scores[nearest].astype(np.float32))


def _rank_values(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the rank (N,) of each value among the distinct values, all below ``most``."""
    if most <= _FEW_CELLS:
        return (np.cumsum(np.bincount(values, minlength=1) > 0) - 1)[values]
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _order_by_position(points: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order (N,) of points (3, N) by z, then y, then x."""
    if points.dtype != np.float32:
        return np.lexsort(points)
    # Two 32-bit keys fit into one number, so one sort suffices.
    bits = (points + np.float32(0.0)).view(np.uint32)
    x, y, z = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    key = z.astype(np.uint64) << np.uint64(32) | y
    order = np.argsort(key)
    equal = np.diff(key[order]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal)) if len(equal) else order[:0]
    among = order[tied]
    order[tied] = among[np.lexsort((x[among], key[among]))]
    return order


def _boxes(
    cloud: NDArray[np.float64],
    column: NDArray[np.int64],
    number: NDArray[np.int64],
    height: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return boxes (columns, 7) around the points of each column, from their first and second moments."""
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
