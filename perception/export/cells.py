"""Rows that belong together as tensors alone: no host, no sort that exported graphs lack.

Exported programs know no size, only that it is one; what is here is traced once for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Spread(NamedTuple):
    """Rows spread out by counts, as ``torch.repeat_interleave``.

    Attributes:
        owner: (T,) int64 which row each comes from, rising.
        within: (T,) int64 its number among those of the row, from 0.
    """

    owner: Tensor
    within: Tensor


def spread(counts: Tensor) -> Spread:
    """Row r, ``counts[r]`` times: counts (R,) int64, not negative."""
    # A last row of none, so that there is one.
    counts = F.pad(counts, (0, 1))
    ends = torch.cumsum(counts, 0)
    total = size(ends[-1])
    starts = ends - counts
    # Rows of no count begin where the next one does: ones add up there; the last place is for the end's.
    begun = torch.zeros(total + 1, dtype=torch.int64).index_add(0, starts, torch.ones_like(starts))
    owner = torch.cumsum(begun[:total], 0) - 1
    return Spread(owner, torch.arange(total) - starts.index_select(0, owner))


def size(count: Tensor) -> int:
    """An integer tensor of one number as a size: not negative."""
    value = count.item()
    torch._check(value >= 0)
    assert isinstance(value, int | torch.SymInt)
    return value


class Chunks(NamedTuple):
    """Runs of rows cut into chunks of one length, the last of each run filled up with its last row.

    Attributes:
        rows: (Q, L) int64 rows.
        counted: (Q, L) bool: not filling.
        owner: (Q,) int64 run of each chunk.
    """

    rows: Tensor
    counted: Tensor
    owner: Tensor

    @staticmethod
    def of(starts: Tensor, counts: Tensor, length: int) -> Chunks:
        """Chunks of runs that begin at rows ``starts`` (R,) and have ``counts`` (R,) rows."""
        owner, within = spread((counts + (length - 1)) // length)
        number = within[:, None] * length + torch.arange(length)
        last = (counts - 1).index_select(0, owner)[:, None]
        rows = starts.index_select(0, owner)[:, None] + torch.minimum(number, last)
        return Chunks(rows, number <= last, owner)

    def maximum(self, values: Tensor, runs: Tensor) -> Tensor:
        """The largest of each run, zero of none.

        Args:
            values: (Q * L, C) of the rows, not negative.
            runs: (R, ...) as many rows as there are runs.
        """
        highest = values.reshape(-1, self.rows.shape[1], values.shape[1]).amax(1)
        owner = self.owner[:, None].expand(-1, values.shape[1])
        return torch.zeros(runs.shape[0], values.shape[1], dtype=torch.float32).scatter_reduce(
            0, owner, highest, "amax"
        )

    def mean(self, values: Tensor, counts: Tensor) -> Tensor:
        """The mean of each run: values (Q * L, C) of the rows, counts (R,) at least 1, to (R, C)."""
        parts = values.reshape(-1, self.rows.shape[1], values.shape[1])
        total = (parts * self.counted[:, :, None]).sum(1)
        empty = torch.zeros(counts.shape[0], values.shape[1], dtype=torch.float32)
        return empty.index_add(0, self.owner, total) / counts[:, None]


class Cells(NamedTuple):
    """Active cells of a grid of fixed shape, by row, then by column.

    Attributes:
        active: (M,) int64 numbers of the cells, row * columns + column.
        places: (rows + 2, columns + 2) int64 row of each cell among the active ones, M where none is; with an
            edge of none.
        shape: rows and columns of the grid.
    """

    active: Tensor
    places: Tensor
    shape: tuple[int, int]

    @staticmethod
    def where(occupied: Tensor) -> Cells:
        """The cells of an (H, W) mask."""
        rows, columns = int(occupied.shape[0]), int(occupied.shape[1])
        active = occupied.reshape(-1).nonzero()[:, 0]
        count = active.shape[0]
        padded = (active // columns + 1) * (columns + 2) + active % columns + 1
        places = torch.full(((rows + 2) * (columns + 2),), 1, dtype=torch.int64) * count
        places = places.index_copy(0, padded, torch.arange(count))
        return Cells(active, places.view(rows + 2, columns + 2), (rows, columns))

    def reached(self) -> Cells:
        """Cells of half the resolution whose 3x3 window holds an active one."""
        occupied = (self.places[1:-1, 1:-1] < self.active.shape[0]).float()
        rows, columns = occupied.shape
        padded = F.pad(occupied, (1, columns % 2, 1, rows % 2))
        across = torch.maximum(torch.maximum(padded[:, :-2:2], padded[:, 1:-1:2]), padded[:, 2::2])
        reached = torch.maximum(torch.maximum(across[:-2:2], across[1:-1:2]), across[2::2])
        return Cells.where(reached > 0)

    def around(self, finer: Cells, stride: int) -> Tensor:
        """Rows (M, 9) of ``finer`` in the 3x3 windows of these cells, ``stride`` finer cells apart."""
        columns = self.shape[1]
        row, column = self.active // columns * stride, self.active % columns * stride
        width = finer.shape[1] + 2
        taps = torch.tensor([dy * width + dx for dy in range(3) for dx in range(3)])
        numbers = (row * width + column)[:, None] + taps
        return finer.places.reshape(-1).index_select(0, numbers.reshape(-1)).reshape(-1, 9)

    def canvas(self, features: Tensor) -> Tensor:
        """Features (M, C) on the grid, zeros elsewhere: (1, C, H, W)."""
        rows, columns = self.shape
        flat = torch.zeros(rows * columns, features.shape[1], dtype=torch.float32).index_copy(
            0, self.active, features
        )
        return flat.view(1, rows, columns, -1).permute(0, 3, 1, 2)


class CellRows(NamedTuple):
    """Features of active cells.

    Attributes:
        cells: of a grid.
        rows: (M, C) at them.
    """

    cells: Cells
    rows: Tensor
