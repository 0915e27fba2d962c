"""Levels of a sparse pyramid through a map that has a place for every cell of the grid.

Where the grid is bounded, a map from cells to rows answers any number of lookups without sorting or
searching, and which cells a strided layer reaches is an OR of shifted views of it.
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

#: Cells, margins included, of the largest map: 256 MB of row numbers.
MOST_CELLS = 1 << 26


@dataclass(frozen=True, eq=False)
class Level:
    """Active cells in the order of the taps of a submanifold layer.

    Attributes:
        cells: (M, 1 + D) int64 ``(batch, *spatial)`` of each row.
        ordered: the taps of the rows; ``ordered.order`` is the place of each row in key order.
        gathered: (M, K) int32 row under each tap of each row, M where none is active.
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
        """(M,) int64 place of each row among the cells in key order."""
        return self.ordered.order

    def blocks(self, channels: int, dtype: torch.dtype = torch.float32) -> list[RowBlock]:
        """Blocks of a submanifold layer on rows of this many channels."""
        return even_blocks(self.gathered, channels, self.ordered, dtype)


@dataclass(frozen=True, eq=False)
class DirectLevel(Level):
    """A level of a bounded grid.

    Attributes:
        rows: (cells of the grid with margins,) int32 row of each cell, -1 where none is active.
    """

    rows: Tensor


def fits(spatial_shape: Sequence[int], batch_size: int) -> bool:
    """Whether a map of this grid is small enough."""
    return batch_size * math.prod(size + 2 * MARGIN for size in spatial_shape) <= MOST_CELLS


def direct_level(
    cells: Tensor, spatial_shape: Sequence[int], batch_size: int, kernel_size: Sequence[int] = (3, 3)
) -> DirectLevel:
    """The level of distinct active cells.

    Args:
        cells: (M, 1 + D) integer ``(batch, *spatial)`` in key order.
        spatial_shape: cells along each axis.
        batch_size: frames.
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
    ordered = rows_by_taps(_read(rows, keys, offsets) >= 0)
    keys, cells = keys.index_select(0, ordered.order), cells.index_select(0, ordered.order)
    rows[keys] = numbers
    gathered = gather_rows(_read(rows, keys, offsets), count)
    return DirectLevel(cells, ordered, gathered, shape, batch_size, rows)


def strided_level(
    before: DirectLevel,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    channels: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[DirectLevel, list[RowBlock], Tensor]:
    """The level that a dilating strided layer makes, and how to compute it.

    Args:
        before: its input.
        kernel_size, stride, padding: of the layer, as of ``sparse_core.conv.strided_table``; padding
            at most 4.
        channels: width of its input.
        dtype: of its input.

    Returns:
        The level; blocks of the layer; (M,) int64 which of the blocks' output rows is each row of the level.
    """
    shape = output_shape(before.spatial_shape, kernel_size, stride, padding)
    cells = plan_reached(before.cells, kernel_size, stride, padding, shape, before.batch_size)
    if cells is None:
        cells = _reached(before, kernel_size, stride, padding, shape)
    level = direct_level(cells, shape, before.batch_size)
    strides = key_strides(before.spatial_shape)
    offsets = key_offsets(kernel_size, padding, before.spatial_shape)
    planned = plan_taps(cells, [1, *stride], strides, MARGIN, offsets, before.rows, len(before))
    if planned is not None:
        ordered, gathered, _ = planned
    else:
        keys = linear_keys(cells * torch.tensor([1, *stride]), before.spatial_shape)
        ordered, gathered = taps_of(_read(before.rows, keys, offsets), len(before))
    return level, *strided_blocks(ordered, gathered, channels, level, dtype)


def taps_of(read: Tensor, inputs: int) -> tuple[TapOrder, Tensor]:
    """Output cells in the order of their taps.

    Args:
        read: (K, M) integer input row under each tap of each cell; -1 for none.
        inputs: rows of the input.

    Returns:
        The order; (M, K) what is gathered in it, ``inputs`` for none.
    """
    ordered = rows_by_taps(read >= 0)
    return ordered, gather_rows(read, inputs).index_select(0, ordered.order)


def strided_blocks(
    ordered: TapOrder, gathered: Tensor, channels: int, level: Level, dtype: torch.dtype
) -> tuple[list[RowBlock], Tensor]:
    """How to compute a strided layer.

    Args:
        ordered, gathered: of the output cells in key order, see :func:`taps_of`.
        channels: width of the input.
        level: of the outputs.
        dtype: of the input.

    Returns:
        Blocks of the layer; (M,) int64 which of their output rows is each row of the level.
    """
    blocks = even_blocks(gathered, channels, ordered, dtype)
    # Computed row order⁻¹[c] is cell c, and the level's row r is cell level.order[r].
    computed = torch.empty_like(ordered.order)
    computed[ordered.order] = torch.arange(len(ordered.order))
    return blocks, computed[level.order]


def _reached(
    before: DirectLevel,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shape: Sequence[int],
) -> Tensor:
    """(M, 1 + D) outputs that read an active cell, in key order."""
    padded = [size + 2 * MARGIN for size in before.spatial_shape]
    reached = before.rows.view(before.batch_size, *padded) >= 0
    # A window is a box, so axes are looked at one after the other; the last one, the slowest, at the end.
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


def _read(rows: Tensor, keys: Tensor, offsets: Sequence[int]) -> Tensor:
    """(K, M) rows of the cells at these offsets of keys."""
    places = torch.tensor(offsets)[:, None] + keys
    return rows.index_select(0, places.view(-1)).view(places.shape)
