"""Columns of a point cloud with objects above the ground.

C++ code measures the columns. Until it is compiled, without a compiler, and for fine grids, numpy does it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_core.columns.common import CellGrid
from sparse_core.columns.compiled import measure_compiled
from sparse_core.columns.reference import measure_arrays


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
    grid = CellGrid(cell_m, range_m, least_height_m)
    columns = measure_compiled(given, grid) or measure_arrays(given, grid)
    kept = np.flatnonzero(columns.number >= least_points)
    boxes = _boxes(columns.moments.take(kept, 1), columns.height[kept])
    scores = 1.0 - np.exp(-columns.number[kept] / 20.0)
    nearest = np.argsort(np.hypot(boxes[:, 0], boxes[:, 1]), kind="stable")[:most]
    return Columns(boxes[nearest].astype(np.float32), scores[nearest].astype(np.float32))


def _boxes(moments: NDArray[np.float64], height: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return boxes (M, 7) from the moments (6, M) and heights (M,) of columns."""
    xx, yy, xy = moments[3:]
    middle, spread = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
    yaw = np.mod(np.arctan2(2 * xy, xx - yy) / 2, np.pi)
    sides = [2 * np.sqrt(np.maximum(middle + sign * spread, 0.0)) for sign in (1, -1)]
    return np.stack([*moments[:3], *sides, height, yaw], axis=1)
