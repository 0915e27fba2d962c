"""Sparse backbone on a CPU: a plan per level, a few matrix products per layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from perception.model.backbone import SparseBackbone
from perception.model.layers import DenseUnit, SparseBlock, SparseUnit
from sparse_core.conv import SparseTensor, pack_weight
from sparse_core.conv.convolution.cpu.blocks import (
    RowBlock,
    RowPool,
    block_convolution,
    rows_product,
    take_rows,
)
from sparse_core.conv.convolution.cpu.keyed import KeyedLevel, keyed_level, keyed_strided_level
from sparse_core.conv.convolution.cpu.levels import DirectLevel, StridedRows, direct_level, strided_level

#: Level of a bounded or an unbounded grid.
PlannedLevel = DirectLevel | KeyedLevel
#: Form in which the layers of a level read rows: blocks, or a table of rows.
ReadsT = TypeVar("ReadsT")


class BackboneRows(NamedTuple):
    """Output of the backbone at active cells.

    Attributes:
        fine: (M + 1, C_fine) rows of the last level; the last row of ``fine`` and of ``coarse`` is zero.
        fine_level: cells of ``fine``.
        coarse: (M' + 1, C_coarse) rows at the neck's resolution.
        coarse_level: cells of ``coarse``.
    """

    fine: Tensor
    fine_level: PlannedLevel
    coarse: Tensor
    coarse_level: PlannedLevel


class CpuBackbone(ABC, Generic[ReadsT]):
    """Runs a folded sparse backbone with dilating strided layers, without gradients.

    Args:
        backbone: folded backbone.
        keyed: find cells by keys instead of in a map of all cells, for unbounded grids; same results.
    """

    def __init__(self, backbone: SparseBackbone, *, keyed: bool) -> None:
        self.backbone, self.keyed = backbone, keyed

    def __call__(self, pillars: SparseTensor, pool: RowPool) -> BackboneRows:
        """Run the backbone on (M, C) float32 pillar features with cells in key order.

        Args:
            pillars: cells and features.
            pool: memory for rows, also for the returned ones.
        """
        first = keyed_level if self.keyed else direct_level
        level: PlannedLevel = first(pillars.coordinates, pillars.spatial_shape, pillars.batch_size)
        rows = self._first(pillars.features, level, pool)
        for stage in self.backbone.stages:
            level, rows = self._stage(stage, level, rows, pool)
        lateral = self._point(self.backbone.lateral, rows, pool)
        coarse_level, coarse = self._strided(self.backbone.down, level, rows, pool)
        return BackboneRows(lateral, level, coarse, coarse_level)

    @abstractmethod
    def _first(self, features: Tensor, level: PlannedLevel, pool: RowPool) -> Tensor:
        """Return the input rows of the first stage, in the order of the level."""

    @abstractmethod
    def _reads(self, level: PlannedLevel | StridedRows, rows: Tensor) -> ReadsT:
        """Return how the layers of a level, or a strided layer, read rows."""

    @abstractmethod
    def _unit(
        self,
        unit: SparseUnit,
        reads: ReadsT,
        count: int,
        rows: Tensor,
        pool: RowPool,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Run a layer with ``count`` output rows; return (count + 1, C)."""

    @abstractmethod
    def _point(self, unit: SparseUnit, rows: Tensor, pool: RowPool) -> Tensor:
        """Run a 1x1 layer."""

    def _stage(
        self, stage: nn.Module, level: PlannedLevel, rows: Tensor, pool: RowPool
    ) -> tuple[PlannedLevel, Tensor]:
        """Run the layers, and return the input rows to the pool."""
        reads: ReadsT | None = None
        for part in stage.children():
            if isinstance(part, SparseUnit) and max(part.conv.stride) > 1:
                level, rows = self._strided(part, level, rows, pool)
                continue
            if reads is None or isinstance(part, SparseUnit):
                reads = self._reads(level, rows)
            count = len(level)
            if isinstance(part, SparseUnit):
                made, reads = self._unit(part, reads, count, rows, pool), None
                pool.give(rows)
                rows = made
                continue
            assert isinstance(part, SparseBlock)
            hidden = self._unit(part.first, reads, count, rows, pool)
            made = self._unit(part.second, reads, count, hidden, pool, residual=rows)
            pool.give(rows, hidden)
            rows = made
        return level, rows

    def _strided(
        self, unit: SparseUnit, level: PlannedLevel, rows: Tensor, pool: RowPool
    ) -> tuple[PlannedLevel, Tensor]:
        """Run the layers, and return the input rows to the pool."""
        sizes = unit.conv.kernel_size, unit.conv.stride, unit.conv.padding
        after: PlannedLevel
        if isinstance(level, KeyedLevel):
            after, outputs = keyed_strided_level(level, *sizes)
        else:
            after, outputs = strided_level(level, *sizes)
        made = self._unit(unit, self._reads(outputs, rows), len(after), rows, pool)
        ordered = pool.take_with_zero_row(len(after), made.shape[1], made.dtype)
        take_rows(made, outputs.computed, out=ordered[:-1])
        pool.give(rows, made)
        return after, ordered


class PlannedBackbone(CpuBackbone[list[RowBlock]]):
    """Runs the backbone in float32 or bfloat16.

    Results equal those of the backbone up to rounding. The constructor packs the weights.

    Args:
        backbone, keyed: see :class:`CpuBackbone`.
        dtype: dtype of features and weights: float32 or bfloat16.
    """

    def __init__(
        self, backbone: SparseBackbone, *, dtype: torch.dtype = torch.float32, keyed: bool = False
    ) -> None:
        super().__init__(backbone, keyed=keyed)
        self.dtype = dtype
        self._packed = {
            part: _packed(part, dtype) for part in backbone.modules() if isinstance(part, SparseUnit)
        }

    def _first(self, features: Tensor, level: PlannedLevel, pool: RowPool) -> Tensor:
        rows = pool.take_with_zero_row(len(level), features.shape[1])
        take_rows(features.to(self.dtype), level.order, out=rows[:-1])
        return rows

    def _reads(self, level: PlannedLevel | StridedRows, rows: Tensor) -> list[RowBlock]:
        return level.blocks(rows.shape[1], rows.dtype)

    def _unit(
        self,
        unit: SparseUnit,
        reads: list[RowBlock],
        count: int,
        rows: Tensor,
        pool: RowPool,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        weight, bias = self._packed[unit]
        out = pool.take_with_zero_row(count, weight.shape[2])
        return block_convolution(
            rows, weight, reads, out=out, bias=bias, residual=residual, relu=unit.relu, pool=pool
        )

    def _point(self, unit: SparseUnit, rows: Tensor, pool: RowPool) -> Tensor:
        weight, bias = self._packed[unit]
        out = pool.take_with_zero_row(len(rows) - 1, weight.shape[2])
        rows_product(rows[:-1], weight[0], out=out[:-1], bias=bias, relu=unit.relu)
        return out


def _packed(unit: SparseUnit, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return weight (K, C_in, C_out) and bias (C_out,)."""
    return pack_weight(unit.conv.weight.detach()).to(dtype), bias_of(unit).to(dtype)


def bias_of(unit: SparseUnit | DenseUnit) -> Tensor:
    """Return the bias (C_out,) of a folded unit."""
    assert unit.conv.bias is not None
    return unit.conv.bias.detach()
