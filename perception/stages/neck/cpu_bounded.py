"""Neck and heat map on a CPU for a bounded grid, computed in tiles near active cells.

Other cells have the values of an empty scene, see :mod:`perception.stages.neck.empty`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from perception.model.head import CentreHead
from perception.model.listed_map import FeatureMap
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows
from perception.stages.neck.empty import EmptyMaps, dilated, list_reach
from perception.stages.neck.float_layers import FloatLayers
from perception.stages.neck.layers import NeckCells, NeckLayers, OutputCells
from sparse_core.conv.convolution.cpu.blocks import RowPool, take_rows
from sparse_core.conv.convolution.cpu.compiled import plan_dilated, plan_rows
from sparse_core.conv.convolution.cpu.tiles import TILE_MARGINS, TILE_SHAPES, TilePlan, tile_plan

#: Makes the layers of a neck and a head, with their values on an empty scene of a shape.
MakeLayers = Callable[[Neck, CentreHead, tuple[int, int]], NeckLayers]


class _MapCells(OutputCells):
    """Cells of maps of one shape.

    Args:
        near: (B, H, W) bool mask of the cells.
        cells: (M, 3) int64 the same cells in row order.
        empty_rows: (H, W) int32 row of the empty scene, from 0, for every other cell.
        empty_count: rows of the empty scene.
    """

    def __init__(self, near: Tensor, cells: Tensor, empty_rows: Tensor, empty_count: int) -> None:
        self.near, self.cells, self.empty_count = near, cells, empty_count
        batch, height, width = near.shape
        (above, _), (left, _) = TILE_MARGINS
        padded = padded_rows(cells, empty_rows, empty_count, batch)
        self._rows, self._strides = padded.view(-1), padded.stride()
        self._origin = above * self._strides[1] + left
        self.all_rows = padded[:, above : above + height, left : left + width]

    def _places(self, cells: Tensor) -> Tensor:
        frame, row, column = cells.unbind(1)
        return frame * self._strides[0] + row * self._strides[1] + (column + self._origin)

    def at(self, cells: Tensor) -> Tensor:
        """Return the row (M,) int32 of each cell."""
        return self._rows.index_select(0, self._places(cells))

    def tiles_of(self, after: NeckCells, values: Tensor) -> TilePlan:
        """Plan the tiles of a 3x3 layer from these cells to ``after``."""
        assert isinstance(after, _MapCells)
        batch, *shape = after.near.shape
        tile, channels = TILE_SHAPES[values.dtype], values.shape[1]
        return tile_plan(after.cells, shape, batch, tile, self._rows, self._strides, self._origin, channels)

    def neighbours_of(self, after: NeckCells) -> Tensor:
        """Return the rows (M, 9) int32 that a 3x3 layer from these cells to ``after`` reads."""
        line = self._strides[1]
        steps = torch.tensor([dy * line + dx for dy in (-1, 0, 1) for dx in (-1, 0, 1)])
        places = self._places(after.cells)[:, None] + steps
        return self._rows.index_select(0, places.view(-1)).view(places.shape)

    def whole(self, values: Tensor) -> Tensor:
        """Return (B, C, H, W), channels last, of rows from :meth:`values`."""
        rows = self.all_rows.reshape(-1)
        taken = take_rows(values, rows, out=values.new_empty((len(rows), values.shape[1])))
        return taken.view(*self.near.shape, -1).permute(0, 3, 1, 2)

    def heat(self, values: Tensor) -> Tensor:
        """Return (B, C, H, W) contiguous of rows from :meth:`values`."""
        return self.whole(values).contiguous()


class CpuBoundedNeck:
    """Runs a folded neck and heat map on rows, without gradients.

    Results equal those of the dense layers up to rounding. The constructor packs the weights.

    Args:
        neck: folded neck.
        head: folded head, for its heat map.
        shape: rows and columns of the neck's map.
        layers: makes the layers, with their values on an empty scene of a shape. None: float32 layers.
    """

    def __init__(
        self, neck: Neck, head: CentreHead, shape: tuple[int, int], *, layers: MakeLayers | None = None
    ) -> None:
        self.shape = shape
        empty = EmptyMaps(shape, list_reach(len(neck.blocks)))
        self._empty_cells = empty.cells
        self._empty_rows, self._empty_fine_rows = empty.every_cell().int(), empty.every_finer_cell().int()
        with torch.inference_mode():
            self._layers = (layers or FloatLayers)(neck, head, empty.small)

    def features(self, rows: BackboneRows, pool: RowPool) -> tuple[OutputCells, Tensor]:
        """Compute cells and rows of the head's map; the pool owns input and output rows."""
        layers, empty = self._layers, self._layers.empty
        before = self._active(rows)
        values = before.values(empty.inputs[0], pool)
        values[: len(before)] = rows.coarse[:-1]
        for first in range(0, len(empty.inputs) - 1, 2):
            middle = self._dilated(before)
            after = self._dilated(middle)
            hidden = middle.values(empty.inputs[first + 1], pool)
            layers.convolve(first, before, values, middle, pool, out=hidden)
            skip = pool.take(len(after), values.shape[1], values.dtype)
            take_rows(values, before.at(after.cells), out=skip)
            made = after.values(empty.inputs[first + 2], pool)
            layers.convolve(first + 1, middle, hidden, after, pool, out=made, residual=skip)
            pool.give(values, hidden, skip)
            before, values = after, made
        fine = self._finer(before)
        raised = fine.values(empty.raised, pool)
        layers.raise_rows(before, values, fine, rows, pool, out=raised)
        last = self._last(fine)
        made = last.values(empty.features, pool)
        layers.convolve(len(empty.inputs) - 1, fine, raised, last, pool, out=made)
        pool.give(values, raised, rows.fine, rows.coarse)
        return last, made

    def whole(self, cells: OutputCells, features: Tensor) -> FeatureMap:
        """Return the map of the rows of :meth:`features`, in new memory."""
        return self._layers.as_numbers(cells.whole(features))

    def heat_logits(self, cells: OutputCells, features: Tensor, pool: RowPool) -> Tensor:
        """Compute heat logits (B, classes, 2H, 2W), and return the rows of :meth:`features` to the pool."""
        logits = cells.values(self._layers.empty.heat, pool)
        count = len(cells)
        self._layers.heat_logits(features[:count], pool, out=logits[:count])
        heat = cells.heat(logits)
        pool.give(features, logits)
        return heat

    def _active(self, rows: BackboneRows) -> NeckCells:
        """Return the cells of the coarse rows, in their order."""
        level = rows.coarse_level
        near = torch.zeros((level.batch_size, *self.shape), dtype=torch.bool)
        near[tuple(level.cells.unbind(1))] = True
        return _MapCells(near, level.cells, self._empty_rows, self._empty_cells)

    def _dilated(self, cells: NeckCells) -> NeckCells:
        assert isinstance(cells, _MapCells)
        return _MapCells(*dilated_cells(cells.near), self._empty_rows, self._empty_cells)

    def _finer(self, cells: NeckCells) -> NeckCells:
        """Return the four finer cells of each cell."""
        assert isinstance(cells, _MapCells)
        near = cells.near.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
        return _MapCells(near, finer_cells(cells.cells), self._empty_fine_rows, 4 * self._empty_cells)

    def _last(self, fine: NeckCells) -> OutputCells:
        """Return the finer cells that the last 3x3 layer reaches."""
        assert isinstance(fine, _MapCells)
        return _MapCells(*dilated_cells(fine.near), self._empty_fine_rows, 4 * self._empty_cells)


def dilated_cells(near: Tensor) -> tuple[Tensor, Tensor]:
    """Dilate (B, H, W) bool maps by one cell; return the mask and the cells (M, 3) int64."""
    planned = plan_dilated(near)
    if planned is not None:
        return planned
    wider = dilated(near)
    return wider, wider.nonzero()


def padded_rows(cells: Tensor, empty_rows: Tensor, empty_count: int, batch_size: int) -> Tensor:
    """Return the row of each cell with the margins of tiles: (B, H + margins, W + margins) int32.

    Args:
        cells: (M, 3) int64 listed cells, in row order.
        empty_rows: (H, W) int32 row of the empty scene, from 0, for every other cell.
        empty_count: rows of the empty scene, after the listed ones; a row of zeros for margins follows.
    """
    planned = plan_rows(cells, empty_rows, empty_count, batch_size, TILE_MARGINS)
    if planned is not None:
        return planned
    (above, below), (left, right) = TILE_MARGINS
    height, width = empty_rows.shape
    count = len(cells)
    padded = torch.full(
        (batch_size, height + above + below, width + left + right), count + empty_count, dtype=torch.int32
    )
    inner = padded[:, above : above + height, left : left + width]
    inner.copy_(empty_rows).add_(count)
    frame, row, column = cells.unbind(1)
    inner[frame, row, column] = torch.arange(count, dtype=torch.int32)
    return padded


def finer_cells(cells: Tensor) -> Tensor:
    """Return the four finer cells (4 * M, 3) of each cell (M, 3)."""
    parity = torch.tensor([[0, dy, dx] for dy in (0, 1) for dx in (0, 1)])
    return ((cells * torch.tensor([1, 2, 2]))[:, None] + parity).reshape(-1, 3)
