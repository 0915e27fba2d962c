"""Grids of fixed capacity: numbering of cells, and data structures.

A bounded grid needs no hash table. One bit per cell marks active cells; the row is the number of ones before
a cell's bit, counted by word of 32 cells. Every size is known before the data, so a network over such grids
is captured once in a CUDA graph for all frames up to its capacity.

Cells are numbered ``((b * D + z) * H + y) * Wp + x``, without ``D`` in two dimensions. ``Wp`` is the width
rounded up to a multiple of 32, so a line of cells begins with a word. Numbers ascend like linear keys, so
rows equal those of a :class:`~sparse_core.conv.coordinates.CoordinateTable` of the same cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.conv.coordinates.common import coordinates_from_keys, linear_keys

#: Cells per word.
WORD = 32


def padded_width(width: int) -> int:
    """Round ``width`` up to a multiple of 32."""
    return (width + WORD - 1) // WORD * WORD


def word_count(spatial_shape: Sequence[int], batch_size: int) -> int:
    """Return the words of 32 cells in a batch of grids."""
    *leading, width = checked_shape(spatial_shape)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    cells = batch_size * math.prod(leading) * padded_width(width)
    if cells > 2**31 - 1:
        raise ValueError(
            f"{batch_size} grids of {tuple(spatial_shape)} have {cells} cells, more than 2^31 - 1: use a"
            " FixedHash"
        )
    return cells // WORD


def checked_shape(spatial_shape: Sequence[int]) -> tuple[int, ...]:
    """Return sizes as a tuple of integers."""
    shape = tuple(int(size) for size in spatial_shape)
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise ValueError(f"spatial_shape must have 1 to 3 sizes of at least 1, got {shape}")
    return shape


def linear_cells(coordinates: Tensor, spatial_shape: Sequence[int]) -> Tensor:
    """Return cell numbers (N,) int32 of (N, 1 + D) integer ``(batch, *spatial)`` inside the grid."""
    *leading, width = checked_shape(spatial_shape)
    columns = coordinates.to(torch.int32).unbind(1)
    cells = columns[0]
    for column, size in zip(columns[1:], [*leading, padded_width(width)], strict=True):
        cells = cells * size + column
    return cells


def cell_coordinates(cells: Tensor, spatial_shape: Sequence[int]) -> Tensor:
    """Return ``(batch, *spatial)`` of cell numbers: (N, 1 + D) int32, all -1 for negative numbers."""
    *leading, width = checked_shape(spatial_shape)
    columns, rest = [], cells.to(torch.int32)
    for size in [padded_width(width), *leading[::-1]]:
        columns.append(rest % size)
        rest = torch.div(rest, size, rounding_mode="floor")
    found = torch.stack([rest, *columns[::-1]], dim=1)
    return torch.where(cells[:, None] < 0, -1, found)


@dataclass(frozen=True, eq=False)
class FixedGrid:
    """Active cells of a batch of bounded grids, at most ``capacity`` of them.

    Rows are ranks of the active cells in cell order. Everything that depends on data is on the device.

    Attributes:
        spatial_shape: sizes of one grid in cells.
        batch_size: grids.
        capacity: most rows.
        words: (words, 2) int32: bits of 32 cells, lowest first, and number of active cells before this word.
        cells: (capacity,) int32 cell of each row, -1 beyond the last.
        count: (1,) int32 rows in use.
        active: (1,) int32 active cells, including those beyond the capacity, which have no row.
    """

    spatial_shape: tuple[int, ...]
    batch_size: int
    capacity: int
    words: Tensor
    cells: Tensor
    count: Tensor
    active: Tensor

    def coordinates(self) -> Tensor:
        """Return ``(batch, *spatial)`` of each row, (capacity, 1 + D) int32, -1 beyond the last."""
        return cell_coordinates(self.cells, self.spatial_shape)


@dataclass(frozen=True)
class DenseGrid:
    """Batch of grids in which every cell is a row, in row-major order without padding.

    Attributes:
        spatial_shape: sizes of one grid in cells.
        batch_size: grids.
    """

    spatial_shape: tuple[int, ...]
    batch_size: int

    @property
    def capacity(self) -> int:
        """Number of rows: all cells."""
        return self.batch_size * math.prod(self.spatial_shape)


@dataclass(frozen=True, eq=False)
class FixedHash:
    """Active cells of a grid too large for a bit per cell, at most ``capacity`` of them.

    Attributes:
        spatial_shape: sizes of one grid in cells.
        batch_size: grids; look-ups ignore larger batch indices.
        capacity: most rows.
        keys: (capacity,) int64 ascending linear keys (see ``sparse_core.conv.coordinates.common``), -1 beyond
            the last.
        slots: (2^k,) int64 key of each slot of the hash table, -1 if free; None from the reference, which
            searches ``keys``.
        values: (2^k,) int32 row of each slot, -1 beyond the capacity, undefined if the slot is free; None
            likewise.
        count: (1,) int32 rows in use.
        active: (1,) int32 active cells, including those beyond the capacity, which have no row.
    """

    spatial_shape: tuple[int, ...]
    batch_size: int
    capacity: int
    keys: Tensor
    slots: Tensor | None
    values: Tensor | None
    count: Tensor
    active: Tensor

    def rising_keys(self) -> Tensor:
        """Return keys (capacity,) int64 that ascend to the end: the largest integer follows the last row."""
        return torch.where(self.keys < 0, torch.iinfo(torch.int64).max, self.keys)

    def coordinates(self) -> Tensor:
        """Return ``(batch, *spatial)`` of each row, (capacity, 1 + D) int32, -1 beyond the last."""
        found = coordinates_from_keys(self.keys.clamp(min=0), self.spatial_shape)
        return torch.where(self.keys[:, None] < 0, -1, found)

    def rows_of(self, coordinates: Tensor) -> Tensor:
        """Return rows of a few cells by binary search; works in a CUDA graph.

        Args:
            coordinates: (N, 1 + D) integer, at most 4 cells outside the grid; a negative batch is ignored.

        Returns:
            (N,) int64: -1 for a cell that is not active, or beyond the capacity.
        """
        queries, keys = linear_keys(coordinates, self.spatial_shape), self.rising_keys()
        place = torch.searchsorted(keys, queries).clamp_(max=self.capacity - 1)
        return torch.where((coordinates[:, 0] >= 0) & (keys[place] == queries), place, -1)


#: Any grid with rows.
Grid = FixedGrid | FixedHash | DenseGrid


class GridLevel(NamedTuple):
    """Geometry of a level of a pyramid: the strided convolution that makes it.

    Attributes:
        kernel_size, stride, padding: one per spatial axis, as in ``torch.nn.functional.conv2d``.
        dilating: as in :func:`~sparse_core.conv.strided_table`.
    """

    kernel_size: tuple[int, ...] = (3, 3)
    stride: tuple[int, ...] = (2, 2)
    padding: tuple[int, ...] = (1, 1)
    dilating: bool = True


class TableRequest(NamedTuple):
    """Arguments of :func:`neighbour_table`.

    Attributes:
        inputs: grid to read.
        outputs: grid to write; ``"all"``: every cell of the output grid.
        kernel_size, stride, padding: one per spatial axis, as in ``torch.nn.functional.conv2d``.
        inverse: the other direction, for gradients and inverse convolutions: the output row that reads each
            input row through each tap.
    """

    inputs: Grid
    outputs: Grid | str
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    inverse: bool = False


def carve(device: torch.device, lengths: Sequence[int]) -> list[Tensor]:
    """Cut an int32 buffer into pieces, each on a boundary of 128 bytes."""
    starts = [0, *accumulate(-(-length // WORD) * WORD for length in lengths)]
    buffer = torch.empty(starts[-1], dtype=torch.int32, device=device)
    return [buffer[start : start + length] for start, length in zip(starts, lengths, strict=False)]
