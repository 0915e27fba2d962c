"""Columns of a point cloud with objects above the ground; shared by perception and memory.

C++ code measures the columns, bit for bit as numpy does; numpy does it until the code is compiled, without a
compiler, and for fine grids.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_core.kernels.native import BackgroundLibrary

_NUMBER, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
COLUMNS = BackgroundLibrary(
    Path(__file__).with_name("columns.cpp"),
    {
        "measure_columns": (
            _NUMBER,
            [_POINTER, *[_NUMBER] * 2, _REAL, _NUMBER, _POINTER, *[_REAL] * 2, *[_POINTER] * 3],
        )
    },
    "columns are measured with arrays",
)

#: Thickness of the ground above the lowest point of a column, in metres.
_GROUND_M = 0.25
#: With more cells, points are sorted by cell to find those with points.
_FEW_CELLS = 1 << 14
_NOT_FINITE = "points must be finite"


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
    grid = _Grid(cell_m, range_m, least_height_m)
    columns = _measure_compiled(given, grid) or _measure_arrays(given, grid)
    kept = np.flatnonzero(columns.number >= least_points)
    boxes = _boxes(columns.moments.take(kept, 1), columns.height[kept])
    scores = 1.0 - np.exp(-columns.number[kept] / 20.0)
    nearest = np.argsort(np.hypot(boxes[:, 0], boxes[:, 1]), kind="stable")[:most]
    return Columns(boxes[nearest].astype(np.float32), scores[nearest].astype(np.float32))


class _Grid(NamedTuple):
    """Square grid of cells, numbered row by row; those at the border are out of range and hold all others."""

    cell_m: float
    range_m: float
    least_height_m: float

    @property
    def reach(self) -> int:
        """Number of cells from the middle to the border."""
        return int(self.range_m / self.cell_m) + 2

    @property
    def width(self) -> int:
        """Number of cells in a row."""
        return 2 * self.reach + 1

    def near(self, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which cells (M,) are within range."""
        middle = [(place - self.reach + 0.5) * self.cell_m for place in np.divmod(cells, self.width)]
        return np.asarray(np.hypot(*middle) <= self.range_m)


class _Measured(NamedTuple):
    """Measurements of columns.

    Attributes:
        height: (M,) float64 vertical extent.
        number: (M,) int64 points above the ground; 0 in columns that are too low or out of range.
        moments: (6, M) float64 of those points: mean x, y, z, and mean of the squared offsets xx, yy, xy.
    """

    height: NDArray[np.float64]
    number: NDArray[np.int64]
    moments: NDArray[np.float64]


def _measure_compiled(given: NDArray[Any], grid: _Grid) -> _Measured | None:
    """Return :func:`_measure_arrays`, or None if the compiled code cannot run."""
    library = COLUMNS.library()
    fits = given.dtype == np.float32 and given.flags.c_contiguous and grid.width**2 <= _FEW_CELLS
    if library is None or not fits:
        return None
    cells = np.arange(grid.width**2)
    near = grid.near(cells)
    found = _Measured(np.empty(len(cells)), np.empty(len(cells), np.int64), np.empty((6, len(cells))))
    failed = library.measure_columns(
        given.ctypes.data, *given.shape, grid.cell_m, grid.reach, near.ctypes.data, grid.least_height_m,
        _GROUND_M, *(part.ctypes.data for part in found),
    )  # fmt: skip
    if failed:
        raise ValueError(_NOT_FINITE)
    return found


def _measure_arrays(given: NDArray[Any], grid: _Grid) -> _Measured:
    """Measure the columns of points (N, 3) or more columns; raise ``ValueError`` if they are not finite."""
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    places = np.ascontiguousarray(given[:, :3].T, dtype)
    if not np.isfinite(places).all():
        raise ValueError(_NOT_FINITE)
    reach, width = grid.reach, grid.width
    row, line = np.clip(np.floor(np.divide(places[:2], grid.cell_m, dtype=np.float64)), -reach, reach)
    cells, column = _number_cells((row * width + line).astype(np.int64) + (width + 1) * reach, width**2)
    lowest, highest = np.full(len(cells), np.inf, dtype), np.full(len(cells), -np.inf, dtype)
    np.minimum.at(lowest, column, places[2])
    np.maximum.at(highest, column, places[2])
    low, high = lowest.astype(np.float64), highest.astype(np.float64)
    standing = (high - low >= grid.least_height_m) & grid.near(cells)
    ground = np.where(standing, low + _GROUND_M, np.inf)
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
    return _Measured(high - low, number, np.stack([*middle, mean(x * x), mean(y * y), mean(x * y)]))


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


def _boxes(moments: NDArray[np.float64], height: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return boxes (M, 7) from the moments (6, M) and heights (M,) of columns."""
    xx, yy, xy = moments[3:]
    middle, spread = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
    yaw = np.mod(np.arctan2(2 * xy, xx - yy) / 2, np.pi)
    sides = [2 * np.sqrt(np.maximum(middle + sign * spread, 0.0)) for sign in (1, -1)]
    return np.stack([*moments[:3], *sides, height, yaw], axis=1)
