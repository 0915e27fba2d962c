"""Interface between the cells of a CPU neck and the number format of its layers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from perception.model.layers import DenseBlock, DenseUnit
from perception.model.listed_map import FeatureMap, ListedMap
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows
from perception.stages.neck.empty import EmptyScene
from sparse_core.conv.convolution.cpu.blocks import RowPool
from sparse_core.conv.convolution.cpu.tiles import TilePlan


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

    def neighbours_of(self, after: NeckCells) -> Tensor:
        """Return the rows (M, 9) int32 that a 3x3 layer from these cells to ``after`` reads."""
        steps = torch.tensor([[0, dy, dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)])
        return torch.stack([self.at(after.cells + step) for step in steps], dim=1)

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


class NeckLayers(ABC):
    """Packed layers of the neck and the heat map.

    Attributes:
        empty: inputs and outputs of the layers on an empty scene, in the number format of the layers.
    """

    empty: EmptyScene

    @abstractmethod
    def convolve(
        self,
        index: int,
        before: NeckCells,
        values: Tensor,
        after: NeckCells,
        pool: RowPool,
        *,
        out: Tensor,
        residual: Tensor | None = None,
    ) -> None:
        """Run a 3x3 layer from values at ``before`` to ``out`` at ``after``; the finer layer is last."""

    @abstractmethod
    def raise_rows(
        self,
        cells: NeckCells,
        values: Tensor,
        fine: NeckCells,
        rows: BackboneRows,
        pool: RowPool,
        *,
        out: Tensor,
    ) -> None:
        """Compute the finer map before its 3x3 layer, from values at ``cells`` to ``out`` at ``fine``."""

    @abstractmethod
    def heat_logits(self, features: Tensor, pool: RowPool, *, out: Tensor) -> None:
        """Compute heat logits, (M, C) to ``out`` (M, classes) float32."""

    def as_numbers(self, features: Tensor | ListedMap) -> FeatureMap:
        """Return a map of rows of :meth:`convolve` as numbers."""
        return features


def convolutions_of(neck: Neck) -> list[DenseUnit]:
    """Return the 3x3 units in their order."""
    return [unit for block in neck.blocks for unit in _units(block)] + [neck.out]


def _units(block: nn.Module) -> tuple[DenseUnit, DenseUnit]:
    assert isinstance(block, DenseBlock)
    return block.first, block.second


def taps_of(unit: DenseUnit) -> Tensor:
    """Return the weight (9, C_in, C_out) of a 3x3 unit."""
    return unit.conv.weight.permute(2, 3, 1, 0).flatten(0, 1)


def matrix_of(layer: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return weight (C_in, C_out) and bias of a 1x1 layer."""
    assert layer.bias is not None
    return layer.weight[:, :, 0, 0].T.contiguous(), layer.bias
