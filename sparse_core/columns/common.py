"""What the implementations share: the grid of cells, and the measurements of its columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Thickness of the ground above the lowest point of a column, in metres.
GROUND_M = 0.25
#: With more cells, points are sorted by cell to find those with points.
FEW_CELLS = 1 << 14
NOT_FINITE = "points must be finite"


class CellGrid(NamedTuple):
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


class MeasuredColumns(NamedTuple):
    """Measurements of columns.

    Attributes:
        height: (M,) float64 vertical extent.
        number: (M,) int64 points above the ground; 0 in columns that are too low or out of range.
        moments: (6, M) float64 of those points: mean x, y, z, and mean of the squared offsets xx, yy, xy.
    """

    height: NDArray[np.float64]
    number: NDArray[np.int64]
    moments: NDArray[np.float64]
