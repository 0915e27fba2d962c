"""Columns of a point cloud with objects above the ground, in numpy; shared by perception and memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Thickness of the ground above the lowest point of a column, in metres.
_GROUND_M = 0.25
#: With more cells, points are sorted by cell to find those with points.
_FEW_CELLS = 1 << 14


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
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    places = np.ascontiguousarray(given[:, :3].T, dtype)
    if not np.isfinite(places).all():
        raise ValueError("points must be finite")
    # Cells are numbered row by row; points out of range count for those at the border.
    reach = int(range_m / cell_m) + 2
    width = 2 * reach + 1
    row, line = np.clip(np.floor(np.divide(places[:2], cell_m, dtype=np.float64)), -reach, reach)
    cells, column = _number_cells((row * width + line).astype(np.int64) + (width + 1) * reach, width**2)
    lowest, highest = np.full(len(cells), np.inf, dtype), np.full(len(cells), -np.inf, dtype)
    np.minimum.at(lowest, column, places[2])
    np.maximum.at(highest, column, places[2])
    low, high = lowest.astype(np.float64), highest.astype(np.float64)
    height = high - low
    middle_x, middle_y = (cells // width - reach + 0.5) * cell_m, (cells % width - reach + 0.5) * cell_m
    standing = (height >= least_height_m) & (np.hypot(middle_x, middle_y) <= range_m)
    ground = np.where(standing, low + _GROUND_M, np.inf)
    above = np.flatnonzero(places[2] > ground.take(column))
    places, column = places.take(above, 1), column.take(above)
    # Sort by position, so that sums do not depend on the order of the points.
    order = _order_by_position(places)
    cloud, column = places.take(order, 1).astype(np.float64), column.take(order)
    number = np.bincount(column, minlength=len(cells))
    kept = np.flatnonzero(number >= least_points)
    boxes = _boxes(cloud, column, number, height)[kept]
    scores = 1.0 - np.exp(-number[kept] / 20.0)
    nearest = np.argsort(np.hypot(boxes[:, 0], boxes[:, 1]), kind="stable")[:most]
    return Columns(boxes[nearest].astype(np.float32), scores[nearest].astype(np.float32))


def _number_cells(cell: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells to count, ascending, and the position (N,) of each point's cell among them.

    Args:
        cell: (N,) cell of each point, below ``most``.
        most: number of cells; many are reduced to those with points.
    """
    if most <= _FEW_CELLS:
        return np.arange(most), cell
    cells, column = np.unique(cell, return_inverse=True)
    return cells, column.reshape(-1)


def _order_by_position(points: NDArray[Any]) -> NDArray[np.int64]:
    """Return the order (N,) of points (3, N) by z, then y, then x."""
    if points.dtype != np.float32:
        return np.lexsort(points)
    # Two 32-bit keys fit into one number, so one sort suffices.
    bits = (points + np.float32(0.0)).view(np.uint32)
    x, y, z = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    key = z.astype(np.uint64) << np.uint64(32) | y
    # Sensors store points ring by ring: a stable sort makes use of ordered runs.
    order = np.argsort(key, kind="stable")
    equal = np.diff(key.take(order)) == 0
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
    """Return boxes (columns, 7) around the points (3, N) of each column, from first and second moments."""
    count, total = len(number), np.maximum(number, 1)
    mean = np.stack([np.bincount(column, values, count) / total for values in cloud])
    x, y = cloud[:2] - mean[:2].take(column, 1)
    xx, yy, xy = (np.bincount(column, values, count) / total for values in (x * x, y * y, x * y))
    middle, spread = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
    yaw = np.mod(np.arctan2(2 * xy, xx - yy) / 2, np.pi)
    sides = [2 * np.sqrt(np.maximum(middle + sign * spread, 0.0)) for sign in (1, -1)]
    return np.stack([*mean, *sides, height, yaw], axis=1)
