"""Grids of square cells on the ground, bounded and unbounded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

#: Cells from the origin of an open grid to the limit of 64-bit keys, along an axis.
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
        """x and y of the origin of positions."""

    @property
    @abstractmethod
    def first_cell(self) -> int:
        """Row and column of the cell at the origin in tables."""

    @property
    @abstractmethod
    def key_shape(self) -> tuple[int, int]:
        """Rows and columns that can have keys."""

    @abstractmethod
    def coarser(self, factor: float) -> GroundGrid:
        """Return a grid of cells ``factor`` times as long."""

    @abstractmethod
    def with_cells(self, cell_m: float) -> GroundGrid:
        """Return a grid with another cell size."""

    @abstractmethod
    def contains(self, *xyz: Tensor) -> Tensor:
        """Return a mask of points in range; NaN is outside.

        Args:
            xyz: x; x and y; or x, y and z in metres, each of any shape.
        """

    def cell_of(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return row and column in tables, int32; undefined for points out of range."""
        # Divide by a tensor: a GPU divides by a number through its inverse, which rounds differently.
        size = torch.full((), self.cell_m, device=x.device, dtype=torch.float32)
        row, column = (
            # Clamp, because the division may round a point below the far edge into the next cell.
            torch.floor((values - low) / size).clamp(-self.first_cell, count - 1 - self.first_cell).int()
            for values, low, count in zip((y, x), self.origin_m[::-1], self.key_shape, strict=True)
        )
        return (row + self.first_cell, column + self.first_cell) if self.first_cell else (row, column)

    def position_of(self, xy: Tensor) -> Tensor:
        """Convert (..., 2) x, y in metres to columns and rows: 0 at the origin, 0.5 at a cell centre."""
        return (xy - self.origin(xy.device)) / self.cell_m

    def metres_of(self, position: Tensor) -> Tensor:
        """Invert :meth:`position_of`."""
        return position * self.cell_m + self.origin(position.device)

    def origin(self, device: torch.device) -> Tensor:
        """Return x and y of the origin: (2,) float32."""
        if device.type == "cpu":
            return torch.tensor(self.origin_m, dtype=torch.float32)
        # A CUDA graph cannot capture a copy from the host.
        return torch.stack(
            [torch.full((), value, device=device, dtype=torch.float32) for value in self.origin_m]
        )

    def positions_of_cells(self, cells: Tensor) -> Tensor:
        """Convert (..., 2) integer columns and rows of tables to positions of corners, float32 and exact."""
        return (cells - self.first_cell if self.first_cell else cells).float()


@dataclass(frozen=True)
class BirdsEyeGrid(GroundGrid):
    """Cells of a bounded range.

    Attributes:
        range_m: x, y, z minimum, then x, y, z maximum (exclusive).
        cell_m: edge of a cell.
    """

    range_m: tuple[float, float, float, float, float, float]
    cell_m: float

    @property
    def origin_m(self) -> tuple[float, float]:
        """Corner of the first cell."""
        return self.range_m[0], self.range_m[1]

    @property
    def first_cell(self) -> int:
        """Zero: tables count from the corner."""
        return 0

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        x0, y0, _, x1, y1, _ = self.range_m
        return max(1, round((y1 - y0) / self.cell_m)), max(1, round((x1 - x0) / self.cell_m))

    @property
    def key_shape(self) -> tuple[int, int]:
        """See :attr:`shape`."""
        return self.shape

    def coarser(self, factor: float) -> BirdsEyeGrid:
        """Return the same range in cells ``factor`` times as long."""
        return BirdsEyeGrid(self.range_m, self.cell_m * factor)

    def with_cells(self, cell_m: float) -> BirdsEyeGrid:
        """Return the same range with another cell size."""
        return BirdsEyeGrid(self.range_m, cell_m)

    def contains(self, *xyz: Tensor) -> Tensor:
        """See :meth:`GroundGrid.contains`."""
        limits = zip(xyz, self.range_m[:3], self.range_m[3:], strict=False)
        inside = [(values >= low) & (values < high) for values, low, high in limits]
        return torch.stack(inside).all(dim=0)


@dataclass(frozen=True)
class OpenGrid(GroundGrid):
    """Cells without bounds in x and y; only occupied cells are listed.

    Attributes:
        corner_m: x and y of the origin, a corner of cells.
        z_range_m: lowest and highest z (exclusive).
        cell_m: edge of a cell.
        keyed_cells: cells with keys from the origin, in each direction.
    """

    corner_m: tuple[float, float]
    z_range_m: tuple[float, float]
    cell_m: float
    keyed_cells: int = _KEYED_CELLS

    @property
    def origin_m(self) -> tuple[float, float]:
        """See :attr:`corner_m`."""
        return self.corner_m

    @property
    def first_cell(self) -> int:
        """Middle of the keys, because numbers in tables are not negative."""
        return self.keyed_cells

    @property
    def key_shape(self) -> tuple[int, int]:
        """Twice the cells with keys, in rows and columns."""
        return 2 * self.first_cell, 2 * self.first_cell

    @property
    def reach_m(self) -> float:
        """Largest distance of points from the origin along x and y: 20 km for pillars of 16 cm.

        Single precision resolves 2 mm there. The margin to the last key is for cells that convolutions add.
        """
        return self.first_cell * self.cell_m * (1 - 2**-7)

    def coarser(self, factor: float) -> OpenGrid:
        """Return a grid with the same origin and cells ``factor`` times as long."""
        return OpenGrid(self.corner_m, self.z_range_m, self.cell_m * factor, int(self.keyed_cells / factor))

    def with_cells(self, cell_m: float) -> OpenGrid:
        """Return a grid with the same origin and another cell size."""
        cells = round(self.keyed_cells * self.cell_m / cell_m)
        return OpenGrid(self.corner_m, self.z_range_m, cell_m, cells)

    def contains(self, *xyz: Tensor) -> Tensor:
        """See :meth:`GroundGrid.contains`."""
        inside = [self.reaches(*xyz[:2])]
        inside += [(z >= self.z_range_m[0]) & (z < self.z_range_m[1]) for z in xyz[2:3]]
        return torch.stack(inside).all(dim=0)

    def reaches(self, *xy: Tensor) -> Tensor:
        """Return a mask of points within :attr:`reach_m`, at any height; NaN is outside."""
        near = [(values - low).abs() < self.reach_m for values, low in zip(xy, self.corner_m, strict=False)]
        return torch.stack(near).all(dim=0)
