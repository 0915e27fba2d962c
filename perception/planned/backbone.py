"""The sparse backbone on a CPU: every level planned once, every layer a few matrix products."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.backbone import SparseBackbone
from perception.layers import SparseBlock, SparseUnit
from sparse_core.conv import SparseTensor, pack_weight
from sparse_core.conv.convolution.blocks import RowBlock, RowPool, block_convolution
from sparse_core.conv.convolution.tiles import TilePlan, tile_convolution, tile_weight
from sparse_core.conv.direct import DirectLevel, direct_level, strided_level

__all__ = ["BackboneRows", "PlannedBackbone"]


class BackboneRows(NamedTuple):
    """What the neck joins, at active cells only.

    Attributes:
        fine: (M + 1, C_fine) rows of the last level; the last row is zero, as that of ``coarse``.
        fine_level: its cells.
        coarse: (M' + 1, C_coarse) rows at the neck's resolution.
        coarse_level: its cells.
    """

    fine: Tensor
    fine_level: DirectLevel
    coarse: Tensor
    coarse_level: DirectLevel


class PlannedBackbone:
    """Runs a folded sparse backbone whose strided layers dilate, float32, without gradients.

    Results are those of the backbone but for rounding. Weights are packed here and now.

    Args:
        backbone: folded.
    """

    def __init__(self, backbone: SparseBackbone) -> None:
        self.backbone = backbone
        self._packed = {
            part: pack_weight(part.conv.weight.detach())
            for part in backbone.modules()
            if isinstance(part, SparseUnit)
        }
        self._tiled: dict[SparseUnit, Tensor] = {}

    def __call__(self, pillars: SparseTensor, pool: RowPool) -> BackboneRows:
        """(M, C) pillar features, cells in key order, to the rows that the neck joins.

        Args:
            pillars: cells and features.
            pool: where rows live; those returned are taken from it.
        """
        level = direct_level(pillars.coordinates, pillars.spatial_shape, pillars.batch_size)
        rows = pool.take_with_zero_row(len(level), pillars.features.shape[1])
        torch.index_select(pillars.features, 0, level.order, out=rows[:-1])
        for stage in self.backbone.stages:
            level, rows = self._stage(stage, level, rows, pool)
        lateral = self._point(self.backbone.lateral, rows, pool)
        coarse_level, coarse = self._strided(self.backbone.down, level, rows, pool)
        return BackboneRows(lateral, level, coarse, coarse_level)

    def _stage(
        self, stage: nn.Module, level: DirectLevel, rows: Tensor, pool: RowPool
    ) -> tuple[DirectLevel, Tensor]:
        """Rows given are given back to the pool."""
        for part in stage.children():
            if isinstance(part, SparseUnit):
                if max(part.conv.stride) > 1:
                    level, rows = self._strided(part, level, rows, pool)
                else:
                    made = self._unit(part, level.blocks(rows.shape[1]), rows, pool)
                    pool.give(rows)
                    rows = made
        residual = [part for part in stage.children() if isinstance(part, SparseBlock)]
        if not residual:
            return level, rows
        # All residual blocks of a stage are of one width.
        width = rows.shape[1]
        plan = level.tiles(width) or level.blocks(width)
        for block in residual:
            hidden = self._unit(block.first, plan, rows, pool)
            made = self._unit(block.second, plan, hidden, pool, residual=rows)
            pool.give(rows, hidden)
            rows = made
        return level, rows

    def _unit(
        self,
        unit: SparseUnit,
        plan: list[RowBlock] | TilePlan,
        rows: Tensor,
        pool: RowPool,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        weight, bias = self._packed[unit], unit.conv.bias
        assert bias is not None
        if isinstance(plan, TilePlan):
            if unit not in self._tiled:
                self._tiled[unit] = tile_weight(weight)
            out = pool.take_with_zero_row(len(plan.places), weight.shape[2])
            return tile_convolution(
                rows,
                self._tiled[unit],
                plan,
                out=out,
                bias=bias,
                residual=residual,
                relu=unit.relu,
                pool=pool,
            )
        out = pool.take_with_zero_row(plan[-1].stop if plan else 0, weight.shape[2])
        return block_convolution(
            rows, weight, plan, out=out, bias=bias, residual=residual, relu=unit.relu, pool=pool
        )

    def _strided(
        self, unit: SparseUnit, level: DirectLevel, rows: Tensor, pool: RowPool
    ) -> tuple[DirectLevel, Tensor]:
        """Rows given are given back to the pool."""
        conv = unit.conv
        after, blocks, computed = strided_level(
            level, conv.kernel_size, conv.stride, conv.padding, rows.shape[1]
        )
        made = self._unit(unit, blocks, rows, pool)
        ordered = pool.take_with_zero_row(len(after), made.shape[1])
        torch.index_select(made, 0, computed, out=ordered[:-1])
        pool.give(rows, made)
        return after, ordered

    def _point(self, unit: SparseUnit, rows: Tensor, pool: RowPool) -> Tensor:
        """A 1x1 layer."""
        weight = self._packed[unit][0]
        assert unit.conv.bias is not None
        out = pool.take_with_zero_row(len(rows) - 1, weight.shape[1])
        torch.addmm(unit.conv.bias, rows[:-1], weight, out=out[:-1])
        return out.relu_() if unit.relu else out
