"""Sparse backbone on a CPU: a plan per level, a few matrix products per layer."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.backbone import SparseBackbone
from perception.model.layers import SparseBlock, SparseUnit
from sparse_core.conv import SparseTensor, pack_weight
from sparse_core.conv.convolution.cpu.blocks import (
    RowBlock,
    RowPool,
    block_convolution,
    rows_product,
    take_rows,
)
from sparse_core.conv.convolution.cpu.keyed import KeyedLevel, keyed_level, keyed_strided_level
from sparse_core.conv.convolution.cpu.levels import DirectLevel, direct_level, strided_level

#: Level of a bounded or an unbounded grid.
PlannedLevel = DirectLevel | KeyedLevel


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


class PlannedBackbone:
    """Runs a folded sparse backbone with dilating strided layers, without gradients.

    Results equal those of the backbone up to rounding. The constructor packs the weights.

    Args:
        backbone: folded backbone.
        dtype: dtype of features and weights: float32 or bfloat16.
        keyed: find cells by keys instead of in a map of all cells, for unbounded grids; same results.
    """

    def __init__(
        self, backbone: SparseBackbone, *, dtype: torch.dtype = torch.float32, keyed: bool = False
    ) -> None:
        self.backbone, self.dtype, self.keyed = backbone, dtype, keyed
        self._packed = {
            part: _packed(part, dtype) for part in backbone.modules() if isinstance(part, SparseUnit)
        }

    def __call__(self, pillars: SparseTensor, pool: RowPool) -> BackboneRows:
        """Run the backbone on (M, C) float32 pillar features with cells in key order.

        Args:
            pillars: cells and features.
            pool: memory for rows, also for the returned ones.
        """
        first = keyed_level if self.keyed else direct_level
        level: PlannedLevel = first(pillars.coordinates, pillars.spatial_shape, pillars.batch_size)
        rows = pool.take_with_zero_row(len(level), pillars.features.shape[1])
        take_rows(pillars.features.to(self.dtype), level.order, out=rows[:-1])
        for stage in self.backbone.stages:
            level, rows = self._stage(stage, level, rows, pool)
        lateral = self._point(self.backbone.lateral, rows, pool)
        coarse_level, coarse = self._strided(self.backbone.down, level, rows, pool)
        return BackboneRows(lateral, level, coarse, coarse_level)

    def _stage(
        self, stage: nn.Module, level: PlannedLevel, rows: Tensor, pool: RowPool
    ) -> tuple[PlannedLevel, Tensor]:
        """Run the layers, and return the input rows to the pool."""
        blocks: list[RowBlock] | None = None
        for part in stage.children():
            if isinstance(part, SparseUnit) and max(part.conv.stride) > 1:
                level, rows = self._strided(part, level, rows, pool)
                continue
            if blocks is None or isinstance(part, SparseUnit):
                blocks = level.blocks(rows.shape[1], rows.dtype)
            if isinstance(part, SparseUnit):
                made, blocks = self._unit(part, blocks, rows, pool), None
                pool.give(rows)
                rows = made
                continue
            assert isinstance(part, SparseBlock)
            hidden = self._unit(part.first, blocks, rows, pool)
            made = self._unit(part.second, blocks, hidden, pool, residual=rows)
            pool.give(rows, hidden)
            rows = made
        return level, rows

    def _unit(
        self,
        unit: SparseUnit,
        blocks: list[RowBlock],
        rows: Tensor,
        pool: RowPool,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        weight, bias = self._packed[unit]
        out = pool.take_with_zero_row(blocks[-1].stop if blocks else 0, weight.shape[2])
        return block_convolution(
            rows, weight, blocks, out=out, bias=bias, residual=residual, relu=unit.relu, pool=pool
        )

    def _strided(
        self, unit: SparseUnit, level: PlannedLevel, rows: Tensor, pool: RowPool
    ) -> tuple[PlannedLevel, Tensor]:
        """Run the layers, and return the input rows to the pool."""
        sizes = unit.conv.kernel_size, unit.conv.stride, unit.conv.padding
        after: PlannedLevel
        if isinstance(level, KeyedLevel):
            after, blocks, computed = keyed_strided_level(level, *sizes, rows.shape[1], rows.dtype)
        else:
            after, blocks, computed = strided_level(level, *sizes, rows.shape[1], rows.dtype)
        made = self._unit(unit, blocks, rows, pool)
        ordered = pool.take_with_zero_row(len(after), made.shape[1])
        take_rows(made, computed, out=ordered[:-1])
        pool.give(rows, made)
        return after, ordered

    def _point(self, unit: SparseUnit, rows: Tensor, pool: RowPool) -> Tensor:
        """Run a 1x1 layer."""
        weight, bias = self._packed[unit]
        out = pool.take_with_zero_row(len(rows) - 1, weight.shape[2])
        rows_product(rows[:-1], weight[0], out=out[:-1], bias=bias, relu=unit.relu)
        return out


def _packed(unit: SparseUnit, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return weight (K, C_in, C_out) and bias (C_out,)."""
    assert unit.conv.bias is not None
    return pack_weight(unit.conv.weight.detach()).to(dtype), unit.conv.bias.detach().to(dtype)
