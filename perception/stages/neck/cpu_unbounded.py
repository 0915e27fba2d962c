"""Neck and heat map on a CPU for an unbounded grid, with cells as sorted 64-bit keys.

Results equal those of :mod:`perception.stages.neck.cpu_bounded`, bit for bit. Cells that no active cell
reaches share one value of the empty scene, or four in the finer map.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from perception.model.head import CentreHead
from perception.model.listed_map import ListedMap
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows
from perception.stages.neck.cpu_bounded import CpuBoundedNeck, MakeLayers, finer_cells
from perception.stages.neck.empty import EmptyMaps, EmptyScene, list_reach
from perception.stages.neck.layers import NeckCells, OutputCells
from sparse_core.conv.convolution.cpu.keyed import CellKeys, KeyedLevel, merge_keys
from sparse_core.conv.convolution.cpu.tiles import TILE_SHAPES, TilePlan, keyed_tile_plan
from sparse_core.conv.coordinates.common import coordinates_from_keys, key_strides, linear_keys

Rows = npt.NDArray[np.int32]


class _KeyedCells(OutputCells):
    """Cells of an unbounded map.

    Args:
        index: rows by key.
        cells: (M, 3) int64 in the order of their rows.
        shape: rows and columns that have keys.
        empty_count: rows of the empty scene: 1, or 4 by parity.
    """

    def __init__(self, index: CellKeys, cells: Tensor, shape: tuple[int, int], empty_count: int) -> None:
        self.index, self.cells, self.shape, self.empty_count = index, cells, shape, empty_count

    @classmethod
    def of(cls, keys: npt.NDArray[np.int64], shape: tuple[int, int], empty_count: int) -> _KeyedCells:
        """Make cells from ascending keys."""
        cells = coordinates_from_keys(torch.from_numpy(keys), shape).long()
        return cls(CellKeys(keys), cells, shape, empty_count)

    def at(self, cells: Tensor) -> Tensor:
        """Return the row (M,) int32 of each cell."""
        return torch.from_numpy(self._filled(self.index.rows_of(linear_keys(cells, self.shape).numpy())))

    def tiles_of(self, after: NeckCells, values: Tensor) -> TilePlan:
        """Plan the tiles of a 3x3 layer from these cells to ``after``."""
        tile = TILE_SHAPES[values.dtype]
        return keyed_tile_plan(after.cells, self.shape, self.windows, values.shape[1], tile)

    def windows(self, corners: Tensor, size: tuple[int, int]) -> Rows:
        """Return rows of windows; see :data:`~sparse_core.conv.convolution.cpu.TileWindows`."""
        keys = linear_keys(corners, self.shape).numpy()
        return self._filled(self.index.windows_of(keys, size, self.shape))

    def _filled(self, rows: Rows) -> Rows:
        filled: Rows = np.where(rows < 0, np.int32(len(self)), rows)
        return filled

    def whole(self, values: Tensor) -> ListedMap:
        """Return the map of the listed cells."""
        return ListedMap(self.cells, self.index, values[:-1].clone(), self.shape)

    def heat(self, values: Tensor) -> Tensor:
        """Return (M + 4, classes) in the order of the map's values."""
        return values[:-1].clone()


class _FinerCells(NeckCells):
    """The four finer cells of each cell, found by the coarse cells."""

    empty_count = 4

    def __init__(self, coarse: _KeyedCells) -> None:
        self.coarse, self.cells = coarse, finer_cells(coarse.cells)
        self.shape = 2 * coarse.shape[0], 2 * coarse.shape[1]

    def at(self, cells: Tensor) -> Tensor:
        """Return the row (M,) int32 of each cell."""
        frame, row, column = cells.unbind(1)
        rows = self.coarse.at(torch.stack([frame, row >> 1, column >> 1], dim=1))
        return (4 * rows + 2 * (row & 1) + (column & 1)).int()

    def tiles_of(self, after: NeckCells, values: Tensor) -> TilePlan:
        """Plan the tiles of a 3x3 layer from these cells to ``after``."""
        tile = TILE_SHAPES[values.dtype]
        return keyed_tile_plan(after.cells, self.shape, self.windows, values.shape[1], tile)

    def windows(self, corners: Tensor, size: tuple[int, int]) -> Rows:
        """Return rows of windows that start at an odd row and column, as in tiles."""
        height, width = size[0] // 2 + 1, size[1] // 2 + 1
        coarse = self.coarse.windows(corners >> torch.tensor([0, 1, 1]), (height, width))
        rows = coarse.reshape(height, width, -1)
        # A coarse cell has 2 x 2 finer ones; the window starts at the odd ones of the first.
        places = [
            4 * rows[(dy + 1) // 2, (dx + 1) // 2] + 2 * ((dy + 1) % 2) + (dx + 1) % 2
            for dy in range(size[0])
            for dx in range(size[1])
        ]
        return np.stack(places)


class CpuUnboundedNeck(CpuBoundedNeck):
    """Runs a folded neck and heat map on rows of an unbounded grid.

    Args:
        neck, head, layers: see :class:`~perception.stages.neck.cpu_bounded.CpuBoundedNeck`.
    """

    def __init__(self, neck: Neck, head: CentreHead, *, layers: MakeLayers | None = None) -> None:
        empty = EmptyMaps.unbounded(list_reach(len(neck.blocks)))
        super().__init__(neck, head, empty.shape, layers=layers)
        middle = empty.middle
        fine = slice(4 * middle, 4 * middle + 4)
        whole = self._layers.empty
        self._layers.empty = EmptyScene(
            [rows[middle : middle + 1] for rows in whole.inputs],
            whole.raised[fine],
            whole.features[fine],
            whole.heat[fine],
        )

    def _active(self, rows: BackboneRows) -> NeckCells:
        level = rows.coarse_level
        assert isinstance(level, KeyedLevel)
        shape = level.spatial_shape[0], level.spatial_shape[1]
        return _KeyedCells(level.index, level.cells, shape, 1)

    def _dilated(self, cells: NeckCells) -> NeckCells:
        assert isinstance(cells, _KeyedCells)
        line = key_strides(cells.shape)[1]
        keys = cells.index.keys
        keys = merge_keys(keys - 1, keys, keys + 1)
        return _KeyedCells.of(merge_keys(keys - line, keys, keys + line), cells.shape, 1)

    def _finer(self, cells: NeckCells) -> NeckCells:
        assert isinstance(cells, _KeyedCells)
        return _FinerCells(cells)

    def _last(self, fine: NeckCells) -> OutputCells:
        assert isinstance(fine, _FinerCells)
        line = key_strides(fine.shape)[1]
        coarse = coordinates_from_keys(torch.from_numpy(fine.coarse.index.keys), fine.coarse.shape)
        corner = linear_keys(coarse.long() * torch.tensor([1, 2, 2]), fine.shape).numpy()
        # The two by two of each, and the cells around them.
        keys = merge_keys(*(corner + dx for dx in range(-1, 3)))
        return _KeyedCells.of(merge_keys(*(keys + dy * line for dy in range(-1, 3))), fine.shape, 4)
