"""Sparse backbone on a CPU in bytes, with exact sums."""

from __future__ import annotations

from torch import Tensor

from perception.model.backbone import SparseBackbone
from perception.model.layers import SparseBlock, SparseUnit
from perception.stages.backbone.cpu import CpuBackbone, PlannedLevel, bias_of
from perception.stages.scales import Scales
from sparse_core.conv import pack_weight
from sparse_core.conv.convolution.cpu.blocks import RowPool
from sparse_core.conv.convolution.cpu.int8 import (
    ByteLayer,
    ByteScale,
    byte_layer,
    byte_rows,
    pack_layer,
    padded,
)
from sparse_core.conv.convolution.cpu.levels import StridedRows


class Int8Backbone(CpuBackbone[Tensor]):
    """Runs the backbone on rows of bytes; a level is read through its table of neighbours.

    The constructor packs the weights.

    Args:
        backbone, keyed: see :class:`~perception.stages.backbone.cpu.CpuBackbone`.
        scales: numbers of the bytes after each layer.
    """

    def __init__(self, backbone: SparseBackbone, scales: Scales, *, keyed: bool = False) -> None:
        super().__init__(backbone, keyed=keyed)
        self._inverse = 1.0 / scales.encoder.step
        self._packed: dict[SparseUnit, ByteLayer] = {}
        before = scales.encoder
        for stage in backbone.stages:
            for part in stage.children():
                if isinstance(part, SparseUnit):
                    before = self._pack(part, before, scales.of(part))
                    continue
                assert isinstance(part, SparseBlock)
                hidden = self._pack(part.first, before, scales.of(part.first))
                before = self._pack(part.second, hidden, scales.of(part.second), before)
        self._pack(backbone.lateral, before, scales.of(backbone.lateral))
        self._pack(backbone.down, before, scales.of(backbone.down))

    def _pack(
        self,
        unit: SparseUnit,
        in_scale: ByteScale,
        out_scale: ByteScale,
        residual_scale: ByteScale | None = None,
    ) -> ByteScale:
        weight, bias = pack_weight(unit.conv.weight.detach()), bias_of(unit)
        self._packed[unit] = pack_layer(
            weight, bias, in_scale=in_scale, out_scale=out_scale, residual_scale=residual_scale
        )
        return out_scale

    def _first(self, features: Tensor, level: PlannedLevel, pool: RowPool) -> Tensor:
        rows = pool.take_with_zero_row(len(level), padded(features.shape[1]))
        byte_rows(features.contiguous(), self._inverse, out=rows[:-1], order=level.order)
        return rows

    def _reads(self, level: PlannedLevel | StridedRows, rows: Tensor) -> Tensor:
        return level.gathered

    def _unit(
        self,
        unit: SparseUnit,
        reads: Tensor,
        count: int,
        rows: Tensor,
        pool: RowPool,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        layer = self._packed[unit]
        out = pool.take_with_zero_row(count, layer.out_width)
        added = None if residual is None else residual[:-1]
        byte_layer(rows, layer, out=out[:-1], table=reads, residual=added)
        return out

    def _point(self, unit: SparseUnit, rows: Tensor, pool: RowPool) -> Tensor:
        layer = self._packed[unit]
        out = pool.take_with_zero_row(len(rows) - 1, layer.out_width)
        byte_layer(rows[:-1], layer, out=out[:-1])
        return out
