"""Levels of a sparse pyramid through sorted 64-bit keys: what they cost grows with active cells alone.

Where a grid has no bounds, or is far larger than what is active in it, there is no place for every cell.
Cells in the order of their keys are found by binary search: queries that rise too visit memory in order, so
that on a CPU this is quicker than a hash table, and merging lists in order needs no sorting. Rows have the
order that :mod:`sparse_core.conv.convolution.cpu.levels` gives them, so layers compute the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.blocks import RowBlock, rows_by_taps
from sparse_core.conv.convolution.cpu.levels import Level, strided_blocks, taps_of
from sparse_core.conv.coordinates.common import coordinates_from_keys, key_offsets, linear_keys
from sparse_core.conv.geometry import output_shape, taps

Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


def merged(*parts: Keys) -> Keys:
    """The distinct ones of rising keys, rising."""
    # A stable sort finds what rises already, and merges it.
    together = np.sort(np.concatenate(parts), kind="stable")
    first = np.ones(len(together), dtype=np.bool_)
    np.not_equal(together[1:], together[:-1], out=first[1:])
    return together[first]


class CellKeys:
    """Distinct cells by their keys, and the row that each has.

    Args:
        keys: (M,) int64 rising linear keys, see ``sparse_core.conv.coordinates.common``.
        rows: (M,) int32 row of each; None: their order.
    """

    def __init__(self, keys: Keys, rows: Rows | None = None) -> None:
        self.keys = keys
        # Behind the last a key that nothing has, and the row of what is not there.
        self._keys = np.append(keys, np.iinfo(np.int64).min)
        self._rows = np.append(np.arange(len(keys), dtype=np.int32) if rows is None else rows, np.int32(-1))

    def __len__(self) -> int:
        return len(self.keys)

    def rows_of(self, keys: Keys) -> Rows:
        """Row of each key, of the same shape; -1 where there is no such cell."""
        place = np.searchsorted(self.keys, keys)
        found: Rows = np.where(self._keys[place] == keys, self._rows[place], np.int32(-1))
        return found

    def runs_of(self, first: Keys, length: int) -> Rows:
        """(length, N) rows of runs of consecutive keys: one search a run.

        Args:
            first: (N,) lowest key of each run.
            length: keys of a run.
        """
        found = np.empty((length, len(first)), dtype=np.int32)
        place = np.searchsorted(self.keys, first)
        for step in range(length):
            # The lower bound of the next key is one further where this one was found.
            there = self._keys[place] == first + step
            found[step] = np.where(there, self._rows[place], np.int32(-1))
            place += there
        return found

    def windows_of(self, corners: Keys, size: Sequence[int], shape: Sequence[int]) -> Rows:
        """(cells of a window, N) rows of the cells of windows, row-major.

        Args:
            corners: (N,) key of the first cell of each.
            size: cells of a window along each axis.
            shape: of the grid.
        """
        *leading, width = size
        lines = key_offsets([*leading, 1], [0] * len(size), shape)
        return np.concatenate([self.runs_of(corners + line, width) for line in lines])


@dataclass(frozen=True, eq=False)
class KeyedLevel(Level):
    """A level of a grid of any size.

    Attributes:
        index: finds its rows.
    """

    index: CellKeys


def keyed_level(
    cells: Tensor, spatial_shape: Sequence[int], batch_size: int, kernel_size: Sequence[int] = (3, 3)
) -> KeyedLevel:
    """The level of distinct active cells, as :func:`~sparse_core.conv.convolution.cpu.direct_level` has it.

    Args:
        cells: (M, 1 + D) integer ``(batch, *spatial)`` in key order.
        spatial_shape: cells along each axis that there are keys for.
        batch_size: frames.
        kernel_size: of its submanifold layers: odd, at most 16 taps.
    """
    shape = tuple(int(size) for size in spatial_shape)
    keys = linear_keys(cells, shape).numpy()
    first = keys - key_offsets([1] * len(shape), [-(size // 2) for size in kernel_size], shape)[0]
    present = CellKeys(keys).windows_of(first, kernel_size, shape)
    ordered = rows_by_taps(torch.from_numpy(present >= 0))
    order = ordered.order.numpy()
    rows = np.empty(len(keys), dtype=np.int32)
    rows[order] = np.arange(len(keys), dtype=np.int32)
    index = CellKeys(keys, rows)
    # Behind the rows, what is gathered where there is none.
    gathered = torch.from_numpy(np.append(rows, np.int32(len(keys)))[present.T[order]])
    return KeyedLevel(cells.long()[ordered.order], ordered, gathered, shape, batch_size, index)


def keyed_strided_level(
    before: KeyedLevel,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    channels: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[KeyedLevel, list[RowBlock], Tensor]:
    """The level that a dilating strided layer makes, and how to compute it.

    Args, and what is returned, are those of :func:`~sparse_core.conv.convolution.cpu.strided_level`.
    """
    shape = output_shape(before.spatial_shape, kernel_size, stride, padding)
    cells = _reached(before, kernel_size, stride, padding, shape)
    level = keyed_level(cells, shape, before.batch_size)
    corners = cells * torch.tensor([1, *stride]) - torch.tensor([0, *padding])
    keys = linear_keys(corners, before.spatial_shape).numpy()
    read = torch.from_numpy(before.index.windows_of(keys, kernel_size, before.spatial_shape))
    return level, *strided_blocks(*taps_of(read, len(before)), channels, level, dtype)


def _reached(
    before: KeyedLevel,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shape: tuple[int, ...],
) -> Tensor:
    """(M, 1 + D) cells of the outputs that read an input, in key order."""
    cells = torch.empty_like(before.cells)
    cells[before.order] = before.cells
    parts = []
    for tap in taps(kernel_size):
        place = cells[:, 1:] + torch.tensor([pad - step for pad, step in zip(padding, tap, strict=True)])
        reached = torch.div(place, torch.tensor(stride), rounding_mode="floor")
        hit = (reached * torch.tensor(stride) == place) & (reached >= 0) & (reached < torch.tensor(shape))
        hit = hit.all(1)
        # Inputs through one tap rise, and so do the outputs that they reach.
        parts.append(linear_keys(torch.cat([cells[hit, :1], reached[hit]], 1), shape).numpy())
    return coordinates_from_keys(torch.from_numpy(merged(*parts)), shape).long()
