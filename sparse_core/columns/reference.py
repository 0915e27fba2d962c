"""Measurements of columns in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_core.columns.common import FEW_CELLS, GROUND_M, NOT_FINITE, CellGrid, MeasuredColumns


def measure_arrays(given: NDArray[Any], grid: CellGrid) -> MeasuredColumns:
    """Measure the columns of points (N, 3) or more columns; raise ``ValueError`` if they are not finite."""
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    places = np.ascontiguousarray(given[:, :3].T, dtype)
    if not np.isfinite(places).all():
        raise ValueError(NOT_FINITE)
    reach, width = grid.reach, grid.width
    row, line = np.clip(np.floor(np.divide(places[:2], grid.cell_m, dtype=np.float64)), -reach, reach)
    cells, column = _number_cells((row * width + line).astype(np.int64) + (width + 1) * reach, width**2)
    lowest, highest = np.full(len(cells), np.inf, dtype), np.full(len(cells), -np.inf, dtype)
    np.minimum.at(lowest, column, places[2])
    np.maximum.at(highest, column, places[2])
    low, high = lowest.astype(np.float64), highest.astype(np.float64)
    standing = (high - low >= grid.least_height_m) & grid.near(cells)
    ground = np.where(standing, low + GROUND_M, np.inf)
    above = np.flatnonzero(places[2] > ground.take(column))
    places, column = places.take(above, 1), column.take(above)
    # Sort by position, so that sums do not depend on the order of the points.
    order = _order_by_position(places)
    cloud, column = places.take(order, 1).astype(np.float64), column.take(order)
    number = np.bincount(column, minlength=len(cells))
    total = np.maximum(number, 1)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(column, values, len(cells)) / total)

    middle = np.stack([mean(values) for values in cloud])
    x, y = cloud[:2] - middle[:2].take(column, 1)
    return MeasuredColumns(high - low, number, np.stack([*middle, mean(x * x), mean(y * y), mean(x * y)]))


def _number_cells(cell: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells to count, ascending, and the position (N,) of each point's cell among them.

    Args:
        cell: (N,) cell of each point, below ``most``.
        most: number of cells; many are reduced to those with points.
    """
    if most <= FEW_CELLS:
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
