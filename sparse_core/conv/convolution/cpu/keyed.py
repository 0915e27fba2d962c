"""Levels of a sparse pyramid by sorted 64-bit keys, at a cost that depends only on active cells.

For an unbounded grid, or one far larger than its active part, a map of every cell is not possible. Binary
search finds cells in key order. Ascending queries visit memory in order, which on a CPU is faster than a hash
table, and merging sorted lists needs no sort. Rows have the order of
:mod:`sparse_core.conv.convolution.cpu.levels`, so layers give bitwise equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.blocks import rows_by_taps
from sparse_core.conv.convolution.cpu.levels import Level, StridedRows, strided_rows, taps_of
from sparse_core.conv.coordinates.common import coordinates_from_keys, key_offsets, linear_keys
from sparse_core.conv.geometry import output_shape, taps

Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


def merge_keys(*parts: Keys) -> Keys:
    """Return the distinct keys of ascending lists, ascending."""
    # A stable sort merges lists that are already sorted.
    together = np.sort(np.concatenate(parts), kind="stable")
    first = np.ones(len(together), dtype=np.bool_)
    np.not_equal(together[1:], together[:-1], out=first[1:])
    return together[first]


class CellKeys:
    """Distinct cells by their keys, and the row of each.

    Args:
        keys: (M,) int64 ascending linear keys, see ``sparse_core.conv.coordinates.common``.
        rows: (M,) int32 row of each; None for their order.
    """

    def __init__(self, keys: Keys, rows: Rows | None = None) -> None:
        self.keys = keys
        # A sentinel: a key that no cell has, with the row of missing cells.
        self._keys = np.append(keys, np.iinfo(np.int64).min)
        self._rows = np.append(np.arange(len(keys), dtype=np.int32) if rows is None else rows, np.int32(-1))

    def __len__(self) -> int:
        return len(self.keys)

    def rows_of(self, keys: Keys) -> Rows:
        """Return the row of each key, in the same shape; -1 for missing cells."""
        place = np.searchsorted(self.keys, keys)
        found: Rows = np.where(self._keys[place] == keys, self._rows[place], np.int32(-1))
        return found

    def runs_of(self, first: Keys, length: int) -> Rows:
        """Return rows (length, N) of runs of consecutive keys, by one search per run.

        Args:
            first: (N,) lowest key of each run.
        """
        found = np.empty((length, len(first)), dtype=np.int32)
        place = np.searchsorted(self.keys, first)
        for step in range(length):
            # If this key was found, the lower bound of the next key is one further.
            is_active = self._keys[place] == first + step
            found[step] = np.where(is_active, self._rows[place], np.int32(-1))
            place += is_active
        return found

    def windows_of(self, corners: Keys, size: Sequence[int], shape: Sequence[int]) -> Rows:
        """Return rows (cells of a window, N) of the cells of windows, row-major.

        Args:
            corners: (N,) key of the first cell of each.
            size: cells of a window along each axis.
        """
        *leading, width = size
        lines = key_offsets([*leading, 1], [0] * len(size), shape)
        return np.concatenate([self.runs_of(corners + line, width) for line in lines])


@dataclass(frozen=True, eq=False)
class KeyedLevel(Level):
    """Level of a grid of any size.

    Attributes:
        index: finds its rows.
    """

    index: CellKeys


def keyed_level(
    cells: Tensor, spatial_shape: Sequence[int], batch_size: int, kernel_size: Sequence[int] = (3, 3)
) -> KeyedLevel:
    """Make the level of distinct active cells, like :func:`~sparse_core.conv.convolution.cpu.direct_level`.

    Args:
        cells: (M, 1 + D) integer ``(batch, *spatial)`` in key order.
        spatial_shape: cells along each axis that keys can number.
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
    # The last entry is the row to gather for missing neighbours.
    gathered = torch.from_numpy(np.append(rows, np.int32(len(keys)))[present.T[order]])
    return KeyedLevel(cells.long()[ordered.order], ordered, gathered, shape, batch_size, index)


def keyed_strided_level(
    before: KeyedLevel, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[KeyedLevel, StridedRows]:
    """Make the output level of a dilating strided layer, and the rows to compute it.

    Arguments and result as in :func:`~sparse_core.conv.convolution.cpu.strided_level`.
    """
    shape = output_shape(before.spatial_shape, kernel_size, stride, padding)
    cells = _reached_cells(before, kernel_size, stride, padding, shape)
    level = keyed_level(cells, shape, before.batch_size)
    corners = cells * torch.tensor([1, *stride]) - torch.tensor([0, *padding])
    keys = linear_keys(corners, before.spatial_shape).numpy()
    read = torch.from_numpy(before.index.windows_of(keys, kernel_size, before.spatial_shape))
    return level, strided_rows(*taps_of(read, len(before)), level)


def _reached_cells(
    before: KeyedLevel,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shape: tuple[int, ...],
) -> Tensor:
    """Return the cells (M, 1 + D) of the outputs that read an input, in key order."""
    cells = torch.empty_like(before.cells)
    cells[before.order] = before.cells
    parts = []
    for tap in taps(kernel_size):
        place = cells[:, 1:] + torch.tensor([pad - step for pad, step in zip(padding, tap, strict=True)])
        reached = torch.div(place, torch.tensor(stride), rounding_mode="floor")
        hit = (reached * torch.tensor(stride) == place) & (reached >= 0) & (reached < torch.tensor(shape))
        hit = hit.all(1)
        # Ascending inputs reach ascending outputs through one tap.
        parts.append(linear_keys(torch.cat([cells[hit, :1], reached[hit]], 1), shape).numpy())
    return coordinates_from_keys(torch.from_numpy(merge_keys(*parts)), shape).long()
