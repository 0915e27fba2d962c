"""The grids of cells on the ground that pillars, maps and boxes are counted on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

#: Cells from the origin of an open grid to the edge of what 64-bit keys have room for, along an axis.
_KEYED_CELLS = 1 << 17


class GroundGrid(ABC):
    """Square cells on the ground, LiDAR frame: rows along y, columns along x, counted from an origin.

    Attributes:
        cell_m: edge of a cell.
    """

    cell_m: float

    @property
    @abstractmethod
    def origin_m(self) -> tuple[float, float]:
        """x and y of the corner from which positions are counted."""

    @property
    @abstractmethod
    def first_cell(self) -> int:
        """Row and column that tables of cells give the cell at the origin."""

    @property
    @abstractmethod
    def key_shape(self) -> tuple[int, int]:
        """Rows and columns that tables of cells have numbers for; of an open grid nobody has them all."""

    @abstractmethod
    def coarser(self, factor: float) -> GroundGrid:
        """The same ground in cells ``factor`` times as long."""

    @abstractmethod
    def with_cells(self, cell_m: float) -> GroundGrid:
        """The same ground in cells of another edge."""

    @abstractmethod
    def contains(self, *xyz: Tensor) -> Tensor:
        """Which points are in range: a mask of the shape of x, y and z (metres); NaN is not.

        Args:
            xyz: coordinates of any shape, the first of x, y, z.
        """

    def cell_of(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column in tables, int32, of points in range; anything for others."""
        # By a tensor: on a GPU a division by a number multiplies by its inverse, which rounds otherwise.
        size = torch.full((), self.cell_m, device=x.device, dtype=torch.float32)
        row, column = (
            # The division can round a point just below the far edge up into the next cell.
            torch.floor((values - low) / size).clamp(-self.first_cell, count - 1 - self.first_cell).int()
            for values, low, count in zip((y, x), self.origin_m[::-1], self.key_shape, strict=True)
        )
        return (row + self.first_cell, column + self.first_cell) if self.first_cell else (row, column)

    def position_of(self, xy: Tensor) -> Tensor:
        """(..., 2) x, y in metres to columns and rows: 0 at the origin, 0.5 in the middle of its cell."""
        return (xy - self.origin(xy.device)) / self.cell_m

    def metres_of(self, position: Tensor) -> Tensor:
        """The inverse of :meth:`position_of`."""
        return position * self.cell_m + self.origin(position.device)

    def origin(self, device: torch.device) -> Tensor:
        """(2,) float32 x and y of the origin."""
        if device.type == "cpu":
            return torch.tensor(self.origin_m, dtype=torch.float32)
        # A copy from the host could not be captured in a CUDA graph.
        return torch.stack(
            [torch.full((), value, device=device, dtype=torch.float32) for value in self.origin_m]
        )

    def positions_of_cells(self, cells: Tensor) -> Tensor:
        """(..., 2) integer columns and rows of tables to positions of their corners, float32 and exact."""
        return (cells - self.first_cell if self.first_cell else cells).float()


@dataclass(frozen=True)
class BirdsEyeGrid(GroundGrid):
    """Cells of a range, which has a shape: maps of all cells can be made.

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
    def first_cell(self) -> int:
        """Tables count from the corner too."""
        return 0

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        x0, y0, _, x1, y1, _ = self.range_m
        return max(1, round((y1 - y0) / self.cell_m)), max(1, round((x1 - x0) / self.cell_m))

    @property
    def key_shape(self) -> tuple[int, int]:
        """The shape."""
        return self.shape

    def coarser(self, factor: float) -> BirdsEyeGrid:
        """The same range in cells ``factor`` times as long."""
        return BirdsEyeGrid(self.range_m, self.cell_m * factor)

    def with_cells(self, cell_m: float) -> BirdsEyeGrid:
        """The same range in cells of another edge."""
        return BirdsEyeGrid(self.range_m, cell_m)

    def contains(self, *xyz: Tensor) -> Tensor:
        """Which points are in range; see :meth:`GroundGrid.contains`."""
        limits = zip(xyz, self.range_m[:3], self.range_m[3:], strict=False)
        inside = [(values >= low) & (values < high) for values, low, high in limits]
        return torch.stack(inside).all(dim=0)


@dataclass(frozen=True)
class OpenGrid(GroundGrid):
    """Cells without end: an origin and a cell, no shape. Only cells that hold something are ever listed.

    Attributes:
        corner_m: x and y of a corner of cells, the origin: they are counted from it in all directions.
        z_range_m: lowest height, and the one above the highest.
        cell_m: edge of a cell.
        keyed_cells: cells from the origin, each way, that there are keys for.
    """

    corner_m: tuple[float, float]
    z_range_m: tuple[float, float]
    cell_m: float
    keyed_cells: int = _KEYED_CELLS

    @property
    def origin_m(self) -> tuple[float, float]:
        """The corner."""
        return self.corner_m

    @property
    def first_cell(self) -> int:
        """In the middle: numbers of tables are not negative."""
        return self.keyed_cells

    @property
    def key_shape(self) -> tuple[int, int]:
        """As many rows and columns as there are keys for."""
        return 2 * self.first_cell, 2 * self.first_cell

    @property
    def reach_m(self) -> float:
        """How far from the origin cells are counted, along x and y: 20 km for pillars of 16 cm.

        There single precision still tells places 2 mm apart. Less than keys have room for: what
        convolutions reach beyond the last points has keys too.
        """
        return self.first_cell * self.cell_m * (1 - 2**-7)

    def coarser(self, factor: float) -> OpenGrid:
        """The same origin in cells ``factor`` times as long."""
        return OpenGrid(self.corner_m, self.z_range_m, self.cell_m * factor, int(self.keyed_cells / factor))

    def with_cells(self, cell_m: float) -> OpenGrid:
        """The same origin in cells of another edge."""
        cells = round(self.keyed_cells * self.cell_m / cell_m)
        return OpenGrid(self.corner_m, self.z_range_m, cell_m, cells)

    def contains(self, *xyz: Tensor) -> Tensor:
        """Which points are in the range of heights and in reach; see :meth:`GroundGrid.contains`."""
        inside = [self.reaches(*xyz[:2])]
        inside += [(z >= self.z_range_m[0]) & (z < self.z_range_m[1]) for z in xyz[2:3]]
        return torch.stack(inside).all(dim=0)

    def reaches(self, *xy: Tensor) -> Tensor:
        """Which points are within :attr:`reach_m`, whatever their height; NaN is not."""
        near = [(values - low).abs() < self.reach_m for values, low in zip(xy, self.corner_m, strict=False)]
        return torch.stack(near).all(dim=0)
