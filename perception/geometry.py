"""The grid of cells on the ground that pillars, maps and boxes are counted on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BirdsEyeGrid:
    """Square cells of a range, LiDAR frame: rows along y, columns along x.

    Attributes:
        range_m: x, y, z minimum then x, y, z maximum; the maximum is outside.
        cell_m: edge of a cell.
    """

    range_m: tuple[float, float, float, float, float, float]
    cell_m: float

    @property
    def origin_m(self) -> tuple[float, float]:
        """x and y of the corner of the first cell."""
        return self.range_m[0], self.range_m[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        x0, y0, _, x1, y1, _ = self.range_m
        return max(1, round((y1 - y0) / self.cell_m)), max(1, round((x1 - x0) / self.cell_m))

    def coarser(self, factor: float) -> BirdsEyeGrid:
        """The same range in cells ``factor`` times as long."""
        return BirdsEyeGrid(self.range_m, self.cell_m * factor)

    def contains(self, *xyz: Tensor) -> Tensor:
        """Which points are in range: a mask of the shape of x, y and z (metres); NaN is not.

        Args:
            xyz: coordinates of any shape, the first of x, y, z.
        """
        limits = zip(xyz, self.range_m[:3], self.range_m[3:], strict=False)
        inside = [(values >= low) & (values < high) for values, low, high in limits]
        return torch.stack(inside).all(dim=0)

    def cell_of(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column, int32, of points in range; anything for others."""
        # By a tensor: on a GPU a division by a number multiplies by its inverse, which rounds otherwise.
        size = torch.full((), self.cell_m, device=x.device)
        row, column = (
            # The division can round a point just below the far edge up into the next cell.
            torch.floor((values - low) / size).clamp(0, count - 1).int()
            for values, low, count in zip((y, x), self.origin_m[::-1], self.shape, strict=True)
        )
        return row, column

    def position_of(self, xy: Tensor) -> Tensor:
        """(..., 2) x, y in metres to columns and rows: 0 at the corner, 0.5 in the middle of a cell."""
        return (xy - torch.tensor(self.origin_m, device=xy.device)) / self.cell_m

    def metres_of(self, position: Tensor) -> Tensor:
        """The inverse of :meth:`position_of`."""
        return position * self.cell_m + torch.tensor(self.origin_m, device=position.device)
