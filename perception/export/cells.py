"""Cells, sparse tensors and pillars for exported programs, whose sizes are symbols.

They use only operators that exporters support. The layers of the network accept them like the output of
:func:`~perception.model.pillars.make_pillars`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.model.pillars import Pillars
from sparse_core.conv import SparseTensor
from sparse_core.conv.coordinates import CoordinateTable
from sparse_core.conv.table import NeighbourTable


class Cells(NamedTuple):
    """Active cells of a grid of fixed shape, by row, then by column.

    Attributes:
        active: (M,) int64 cell numbers, row * columns + column.
        places: (rows + 2, columns + 2) int64 index of each cell in ``active``, M for inactive cells and for
            the border.
        shape: rows and columns of the grid.
    """

    active: Tensor
    places: Tensor
    shape: tuple[int, int]

    @staticmethod
    def where(occupied: Tensor) -> Cells:
        """Return the cells of an (H, W) mask."""
        rows, columns = int(occupied.shape[0]), int(occupied.shape[1])
        active = occupied.reshape(-1).nonzero()[:, 0]
        count = active.shape[0]
        padded = (active // columns + 1) * (columns + 2) + active % columns + 1
        places = torch.full(((rows + 2) * (columns + 2),), 1, dtype=torch.int64) * count
        places = places.index_copy(0, padded, torch.arange(count))
        return Cells(active, places.view(rows + 2, columns + 2), (rows, columns))

    def reached(self) -> Cells:
        """Return the cells of half the resolution whose 3x3 window holds an active one."""
        occupied = (self.places[1:-1, 1:-1] < self.active.shape[0]).float()
        rows, columns = occupied.shape
        padded = F.pad(occupied, (1, columns % 2, 1, rows % 2))
        across = torch.maximum(torch.maximum(padded[:, :-2:2], padded[:, 1:-1:2]), padded[:, 2::2])
        reached = torch.maximum(torch.maximum(across[:-2:2], across[1:-1:2]), across[2::2])
        return Cells.where(reached > 0)

    def around(self, finer: Cells, stride: int) -> Tensor:
        """Return indices (M, 9) into ``finer`` of 3x3 windows around these cells."""
        columns = self.shape[1]
        row, column = self.active // columns * stride, self.active % columns * stride
        width = finer.shape[1] + 2
        taps = torch.tensor([dy * width + dx for dy in range(3) for dx in range(3)])
        numbers = (row * width + column)[:, None] + taps
        return finer.places.reshape(-1).index_select(0, numbers.reshape(-1)).reshape(-1, 9)

    def table(self) -> CoordinateTable:
        """Return the coordinate table of one frame; cell numbers are the keys."""
        columns = self.shape[1]
        row, column = self.active // columns, self.active % columns
        cells = torch.stack([torch.zeros_like(row), row, column], dim=1).int()
        return CoordinateTable(cells, self.active, torch.arange(self.active.shape[0]), self.shape)


@dataclass(frozen=True, eq=False)
class Windows(NeighbourTable):
    """Neighbour table without gradients: ``inverse`` has only a shape."""

    @classmethod
    def of(cls, rows: Tensor, finer: Cells) -> Windows:
        """Return the table of indices (M, taps) into ``finer``; its number of cells means none."""
        return cls(rows.T, torch.empty(rows.shape[1], finer.active.shape[0]))

    @property
    def gathered(self) -> Tensor:
        """(M, taps) rows."""
        return self.rows.T


@dataclass(frozen=True, eq=False)
class CellTensor(SparseTensor):
    """Features of active cells with a symbolic number; ``cache["cells"]`` has the cells."""

    def __post_init__(self) -> None:
        """Check nothing, because sizes are symbols."""

    @classmethod
    def at(cls, cells: Cells, features: Tensor) -> CellTensor:
        """Make a tensor of features (M, C) at cells."""
        table = cells.table()
        return cls(features, table.coordinates, cells.shape, 1, {"cells": cells, "table": table})

    @property
    def cells(self) -> Cells:
        """The active cells."""
        cells: Cells = self.cache["cells"]
        return cells

    def at_cells(self, features: Tensor, table: CoordinateTable) -> CellTensor:
        """Make a tensor at the cells of this tensor's own or strided table."""
        if table is self.cache["table"]:
            return CellTensor(features, self.coordinates, self.spatial_shape, 1, self.cache)
        return CellTensor.at(self.cache["coarser"], features)

    def submanifold_table(self, kernel_size: Any, dilation: Any = None) -> NeighbourTable:
        """Return the neighbours in windows of 3x3 cells or of one cell."""

        def make() -> Windows:
            cells = self.cells
            one = torch.arange(cells.active.shape[0])[:, None]
            return Windows.of(one if tuple(kernel_size) == (1, 1) else cells.around(cells, 1), cells)

        return self._cached(("submanifold", tuple(kernel_size)), make)

    def strided_table(self, *args: Any, **options: Any) -> tuple[NeighbourTable, CoordinateTable]:
        """Return the neighbours of dilating 3x3 layers of stride 2, and their output cells."""

        def make() -> tuple[Windows, CoordinateTable]:
            coarser = self.cells.reached()
            self.cache["coarser"] = coarser
            return Windows.of(coarser.around(self.cells, 2), self.cells), coarser.table()

        return self._cached(("strided",), make)

    def to_dense(self, *, channels_last: bool = False) -> Tensor:
        """Return (1, C, H, W) with zeros at inactive cells."""
        (rows, columns), features = self.cells.shape, self.features
        flat = torch.zeros(rows * columns, features.shape[1], dtype=torch.float32)
        flat = flat.index_copy(0, self.cells.active, features)
        return flat.view(1, rows, columns, -1).permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class CellPillars(Pillars):
    """Points of one frame by pillar.

    Attributes:
        cells: active pillars.
        ends: (cells of the grid + 1,) int64 number of points before each cell, by row, then by column.
    """

    cells: Cells
    ends: Tensor

    def runs_of(self, frames: Tensor, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`perception.model.pillars.Pillars.runs_of`."""
        height, width = self.cells.shape
        line = rows.clamp(0, height - 1) * width
        first, behind = (line + low[:, None].clamp(0, width), line + high[:, None].clamp(-1, width - 1) + 1)
        start, end = (self.ends.index_select(0, cells.flatten()) for cells in (first, behind))
        return start.view(rows.shape), end.view(rows.shape)
