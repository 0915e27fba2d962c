"""Levels of a sparse pyramid by a map with a place for every cell of a bounded grid.

The map from cells to rows answers look-ups without sorting or searching. The cells that a strided layer
reaches are an OR of shifted views of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.blocks import RowBlock, even_blocks, rows_by_taps
from sparse_core.conv.convolution.cpu.compiled import TapOrder, plan_reached, plan_taps
from sparse_core.conv.coordinates.common import MARGIN, key_offsets, key_strides, linear_keys
from sparse_core.conv.geometry import output_shape
from sparse_core.conv.table import gather_rows

#: Cells of the largest map, including margins: 256 MB of row numbers.
MOST_CELLS = 1 << 26


@dataclass(frozen=True, eq=False)
class Level:
    """Active cells in the order of the taps of a submanifold layer.

    Attributes:
        cells: (M, 1 + D) int64 ``(batch, *spatial)`` of each row.
        ordered: the taps of the rows; ``ordered.order`` is the place of each row in key order.
        gathered: (M, K) int32 row under each tap of each row, M for none.
        spatial_shape: cells along each axis.
        batch_size: frames.
    """

    cells: Tensor
    ordered: TapOrder
    gathered: Tensor
    spatial_shape: tuple[int, ...]
    batch_size: int

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def order(self) -> Tensor:
        """Place of each row among the cells in key order, (M,) int64."""
        return self.ordered.order

    def blocks(self, channels: int, dtype: torch.dtype = torch.float32) -> list[RowBlock]:
        """Return the blocks of a submanifold layer for rows of this many channels."""
        return even_blocks(self.gathered, channels, self.ordered, dtype)


@dataclass(frozen=True, eq=False)
class DirectLevel(Level):
    """Level of a bounded grid.

    Attributes:
        rows: (cells of the grid with margins,) int32 row of each cell, -1 for inactive ones.
    """

    rows: Tensor


def fits(spatial_shape: Sequence[int], batch_size: int) -> bool:
    """True if a map of this grid is small enough."""
    return batch_size * math.prod(size + 2 * MARGIN for size in spatial_shape) <= MOST_CELLS


def direct_level(
    cells: Tensor, spatial_shape: Sequence[int], batch_size: int, kernel_size: Sequence[int] = (3, 3)
) -> DirectLevel:
    """Make the level of distinct active cells.

    Args:
        cells: (M, 1 + D) integer ``(batch, *spatial)`` in key order.
        kernel_size: of its submanifold layers: odd, at most 16 taps.
    """
    cells = cells.long()
    shape = tuple(int(size) for size in spatial_shape)
    strides = key_strides(shape)
    offsets = key_offsets(kernel_size, [size // 2 for size in kernel_size], shape)
    rows = torch.full((batch_size * strides[0],), -1, dtype=torch.int32)
    planned = plan_taps(cells, [1] * len(strides), strides, MARGIN, offsets, rows, None)
    if planned is not None:
        ordered, gathered, cells = planned
        return DirectLevel(cells, ordered, gathered, shape, batch_size, rows)
    count, keys = len(cells), linear_keys(cells, shape)
    numbers = torch.arange(count, dtype=torch.int32)
    rows[keys] = numbers
    ordered = rows_by_taps(_read_rows(rows, keys, offsets) >= 0)
    keys, cells = keys.index_select(0, ordered.order), cells.index_select(0, ordered.order)
    rows[keys] = numbers
    gathered = gather_rows(_read_rows(rows, keys, offsets), count)
    return DirectLevel(cells, ordered, gathered, shape, batch_size, rows)


@dataclass(frozen=True, eq=False)
class StridedRows:
    """Output rows of a strided layer, in the order of their taps.

    Attributes:
        ordered: the taps of the rows.
        gathered: (M, K) int32 input row under each tap of each row.
        computed: (M,) int64 the row of each row of the output level.
    """

    ordered: TapOrder
    gathered: Tensor
    computed: Tensor

    def blocks(self, channels: int, dtype: torch.dtype = torch.float32) -> list[RowBlock]:
        """Return the blocks of the layer for input rows of this many channels."""
        return even_blocks(self.gathered, channels, self.ordered, dtype)


def strided_level(
    before: DirectLevel, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[DirectLevel, StridedRows]:
    """Make the output level of a dilating strided layer, and the rows to compute it.

    Args:
        kernel_size, stride, padding: of the layer, as in ``sparse_core.conv.strided_table``; padding at most
            4.
    """
    shape = output_shape(before.spatial_shape, kernel_size, stride, padding)
    cells = plan_reached(before.cells, kernel_size, stride, padding, shape, before.batch_size)
    if cells is None:
        cells = _reached_cells(before, kernel_size, stride, padding, shape)
    level = direct_level(cells, shape, before.batch_size)
    strides = key_strides(before.spatial_shape)
    offsets = key_offsets(kernel_size, padding, before.spatial_shape)
    planned = plan_taps(cells, [1, *stride], strides, MARGIN, offsets, before.rows, len(before))
    if planned is not None:
        ordered, gathered, _ = planned
    else:
        keys = linear_keys(cells * torch.tensor([1, *stride]), before.spatial_shape)
        ordered, gathered = taps_of(_read_rows(before.rows, keys, offsets), len(before))
    return level, strided_rows(ordered, gathered, level)


def taps_of(read: Tensor, inputs: int) -> tuple[TapOrder, Tensor]:
    """Order output cells by their taps.

    Args:
        read: (K, M) integer input row under each tap of each cell; -1 for none.

    Returns:
        The order; (M, K) gathered rows in this order, ``inputs`` for none.
    """
    ordered = rows_by_taps(read >= 0)
    return ordered, gather_rows(read, inputs).index_select(0, ordered.order)


def strided_rows(ordered: TapOrder, gathered: Tensor, level: Level) -> StridedRows:
    """Return the rows of a strided layer.

    Args:
        ordered, gathered: of the output cells in key order, see :func:`taps_of`.
        level: of the output.
    """
    # Computed row order⁻¹[c] is cell c, and the level's row r is cell level.order[r].
    computed = torch.empty_like(ordered.order)
    computed[ordered.order] = torch.arange(len(ordered.order))
    return StridedRows(ordered, gathered, computed[level.order])


def _reached_cells(
    before: DirectLevel,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shape: Sequence[int],
) -> Tensor:
    """Return the outputs (M, 1 + D) that read an active cell, in key order."""
    padded = [size + 2 * MARGIN for size in before.spatial_shape]
    reached = before.rows.view(before.batch_size, *padded) >= 0
    # A window is a box, so process the axes one by one; the last one is the slowest.
    for axis, (size, step, pad, window) in enumerate(zip(shape, stride, padding, kernel_size, strict=True)):
        span = step * (size - 1) + 1
        parts = [
            reached[(slice(None),) * (axis + 1) + (slice(first, first + span, step),)]
            for first in range(MARGIN - pad, MARGIN - pad + window)
        ]
        reached = parts[0].clone()
        for part in parts[1:]:
            reached |= part
    return reached.nonzero()


def _read_rows(rows: Tensor, keys: Tensor, offsets: Sequence[int]) -> Tensor:
    """Return the rows (K, M) of the cells at these key offsets."""
    places = torch.tensor(offsets)[:, None] + keys
    return rows.index_select(0, places.view(-1)).view(places.shape)
