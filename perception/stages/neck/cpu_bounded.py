"""Neck and heat map on a CPU for a bounded grid, computed in tiles near active cells.

Other cells have the values of an empty scene, see :mod:`perception.stages.neck.empty`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.head import CentreHead
from perception.model.layers import DenseBlock, DenseUnit
from perception.model.listed_map import ListedMap
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows
from perception.stages.neck.empty import EmptyMaps, EmptyScene, dilated, list_reach
from sparse_core.conv.convolution.cpu.blocks import (
    RowPool,
    relu_rows_,
    rows_product,
    take_rows,
)
from sparse_core.conv.convolution.cpu.compiled import plan_dilated, plan_rows
from sparse_core.conv.convolution.cpu.tiles import (
    TILE_MARGINS,
    TILE_SHAPES,
    TilePlan,
    tile_convolution,
    tile_plan,
    tile_weight,
)


class _Weights(NamedTuple):
    """Matrices of the neck and the heat map, and their values for an empty scene.

    Attributes:
        convolutions: weight and bias of each 3x3 layer for tiles; the finer layer is last.
        up: weight (C, 4 * C_out), by parity, then channel, and bias.
        heat: weight (C_in, C_out) and bias of both layers of the heat map; the last is float32, to keep the
            order of scores.
        empty: (small cells, C) inputs of the 3x3 layers and of ``up``; last the input of the finer 3x3 layer,
            (4 * small cells, C_out) in rows ``4 * cell + parity``.
        empty_features, empty_heat: (4 * small cells, C) in the same row order.
    """

    convolutions: list[tuple[Tensor, Tensor]]
    up: tuple[Tensor, Tensor]
    heat: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
    empty: list[Tensor]
    empty_features: Tensor
    empty_heat: Tensor


class NeckCells(ABC):
    """Cells that a layer computes, and the row of every cell.

    Attributes:
        cells: (M, 3) int64 ``(frame, row, column)`` in row order.
        empty_count: rows of the empty scene, used for all other cells.
    """

    cells: Tensor
    empty_count: int

    def __len__(self) -> int:
        return len(self.cells)

    @abstractmethod
    def at(self, cells: Tensor) -> Tensor:
        """Return the row (M,) int32 of each cell."""

    @abstractmethod
    def tiles_of(self, after: NeckCells, values: Tensor) -> TilePlan:
        """Plan the tiles of a 3x3 layer from these cells to ``after``."""

    def values(self, empty: Tensor, pool: RowPool) -> Tensor:
        """Allocate rows for the cells, followed by those of the empty scene and a row of zeros."""
        values = pool.take_with_zero_row(len(self) + self.empty_count, empty.shape[1], empty.dtype)
        values[len(self) : -1] = empty
        return values


class OutputCells(NeckCells):
    """Cells of the last layer, whose rows can be read as a map."""

    @abstractmethod
    def whole(self, values: Tensor) -> Tensor | ListedMap:
        """Return the map of rows from :meth:`values`, in new memory."""

    @abstractmethod
    def heat(self, values: Tensor) -> Tensor:
        """Return the heat map of rows from :meth:`values`, in new memory."""


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
        dtype: dtype of features and weights: float32 or bfloat16. Heat logits are float32.
    """

    def __init__(
        self, neck: Neck, head: CentreHead, shape: tuple[int, int], *, dtype: torch.dtype = torch.float32
    ) -> None:
        self.shape = shape
        empty = EmptyMaps(shape, list_reach(len(neck.blocks)))
        self._empty_cells = empty.cells
        self._empty_rows, self._empty_fine_rows = empty.every_cell().int(), empty.every_finer_cell().int()
        with torch.inference_mode():
            self._weights = _pack(neck, head, empty.small, dtype)

    def features(self, rows: BackboneRows, pool: RowPool) -> tuple[OutputCells, Tensor]:
        """Compute cells and rows of the head's map; the pool owns input and output rows."""
        convolutions, empty = self._weights.convolutions, self._weights.empty
        before = self._active(rows)
        values = before.values(empty[0], pool)
        values[: len(before)] = rows.coarse[:-1]
        for first in range(0, len(convolutions) - 1, 2):
            middle = self._dilated(before)
            after = self._dilated(middle)
            hidden = self._layer(first, before, values, middle, empty[first + 1], pool)
            skip = pool.take(len(after), values.shape[1])
            take_rows(values, before.at(after.cells), out=skip)
            made = self._layer(first + 1, middle, hidden, after, empty[first + 2], pool, skip)
            pool.give(values, hidden, skip)
            before, values = after, made
        fine = self._finer(before)
        raised = self._raised(before, values, fine, rows, pool)
        last = self._last(fine)
        made = self._layer(len(convolutions) - 1, fine, raised, last, self._weights.empty_features, pool)
        pool.give(values, raised, rows.fine, rows.coarse)
        return last, made

    def heat_logits(self, cells: OutputCells, features: Tensor, pool: RowPool) -> Tensor:
        """Compute heat logits (B, classes, 2H, 2W), and return the rows of :meth:`features` to the pool."""
        (hidden_weight, hidden_bias), (weight, bias) = self._weights.heat
        logits = cells.values(self._weights.empty_heat, pool)
        count = len(cells)
        hidden = pool.take(count, hidden_weight.shape[1])
        rows_product(features[:count], hidden_weight, out=hidden, bias=hidden_bias, relu=True)
        exact = hidden
        if hidden.dtype != weight.dtype:
            exact = pool.take(count, hidden_weight.shape[1], weight.dtype).copy_(hidden)
            pool.give(hidden)
        rows_product(exact, weight, out=logits[:count], bias=bias)
        heat = cells.heat(logits)
        pool.give(features, exact, logits)
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

    def _layer(
        self,
        index: int,
        before: NeckCells,
        values: Tensor,
        after: NeckCells,
        empty: Tensor,
        pool: RowPool,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Run a 3x3 layer from values at ``before`` to values at ``after``."""
        weight, bias = self._weights.convolutions[index]
        return tile_convolution(
            values,
            weight,
            before.tiles_of(after, values),
            out=after.values(empty, pool),
            bias=bias,
            residual=residual,
            relu=True,
            pool=pool,
        )

    def _raised(
        self, cells: NeckCells, values: Tensor, fine: NeckCells, rows: BackboneRows, pool: RowPool
    ) -> Tensor:
        """Compute the finer map before its 3x3 layer, at ``fine``."""
        weight, bias = self._weights.up
        raised = fine.values(self._weights.empty[-1], pool)
        count = len(fine)
        rows_product(values[: len(cells)], weight, out=raised[:count].view(len(cells), -1), bias=bias)
        # Cells of the finer level are distinct, so every row gets one addend.
        raised.index_add_(0, fine.at(rows.fine_level.cells), rows.fine[:-1])
        relu_rows_(raised[:count])
        return raised


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


def _pack(neck: Neck, head: CentreHead, small: tuple[int, int], dtype: torch.dtype) -> _Weights:
    """Pack the weights and run the layers on a small empty scene."""
    units = [unit for block in neck.blocks for unit in _units(block)] + [neck.out]
    weight = neck.up.conv.weight
    empty = EmptyScene.of(neck, head, small)
    taps = [unit.conv.weight.permute(2, 3, 1, 0).flatten(0, 1) for unit in units]
    up, up_bias = weight.permute(0, 2, 3, 1).reshape(len(weight), -1), _bias(neck.up).repeat(4)
    hidden_weight, hidden_bias = _matrix(head.heat_hidden)
    return _Weights(
        [(tile_weight(tap, dtype), _bias(unit).to(dtype)) for tap, unit in zip(taps, units, strict=True)],
        (up.to(dtype), up_bias.to(dtype)),
        ((hidden_weight.to(dtype), hidden_bias.to(dtype)), _matrix(head.heat)),
        [rows.to(dtype) for rows in (*empty.inputs, empty.raised)],
        empty.features.to(dtype),
        empty.heat,
    )


def _units(block: nn.Module) -> tuple[DenseUnit, DenseUnit]:
    assert isinstance(block, DenseBlock)
    return block.first, block.second


def _bias(unit: DenseUnit) -> Tensor:
    assert unit.conv.bias is not None
    return unit.conv.bias


def _matrix(layer: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return weight (C_in, C_out) and bias of a 1x1 layer."""
    assert layer.bias is not None
    return layer.weight[:, :, 0, 0].T.contiguous(), layer.bias
