"""Neck and heat map in float32 or bfloat16, by tiles."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perception.model.head import CentreHead
from perception.model.layers import DenseBlock, DenseUnit
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows
from perception.stages.neck.empty import EmptyScene
from perception.stages.neck.layers import NeckCells, NeckLayers
from sparse_core.conv.convolution.cpu.blocks import RowPool, relu_rows_, rows_product
from sparse_core.conv.convolution.cpu.tiles import tile_convolution, tile_weight


class FloatLayers(NeckLayers):
    """Layers of one dtype of features and weights.

    Args:
        neck, head: folded.
        small: shape of the empty scene.
        dtype: float32 or bfloat16. The last layer of the heat map is float32, to keep the order of scores.
    """

    def __init__(
        self, neck: Neck, head: CentreHead, small: tuple[int, int], *, dtype: torch.dtype = torch.float32
    ) -> None:
        units = convolutions_of(neck)
        weight = neck.up.conv.weight
        taps = [unit.conv.weight.permute(2, 3, 1, 0).flatten(0, 1) for unit in units]
        up, up_bias = weight.permute(0, 2, 3, 1).reshape(len(weight), -1), dense_bias(neck.up).repeat(4)
        hidden_weight, hidden_bias = matrix_of(head.heat_hidden)
        empty = EmptyScene.of(neck, head, small)
        self._convolutions = [
            (tile_weight(tap, dtype), dense_bias(unit).to(dtype))
            for tap, unit in zip(taps, units, strict=True)
        ]
        #: (C, 4 * C_out), by parity, then channel.
        self._up = up.to(dtype), up_bias.to(dtype)
        self._heat = (hidden_weight.to(dtype), hidden_bias.to(dtype)), matrix_of(head.heat)
        self.empty = EmptyScene(
            [rows.to(dtype) for rows in empty.inputs],
            empty.raised.to(dtype),
            empty.features.to(dtype),
            empty.heat,
        )

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
        """See :meth:`NeckLayers.convolve`."""
        weight, bias = self._convolutions[index]
        tiles = before.tiles_of(after, values)
        tile_convolution(values, weight, tiles, out=out, bias=bias, residual=residual, relu=True, pool=pool)

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
        """See :meth:`NeckLayers.raise_rows`."""
        weight, bias = self._up
        count = len(fine)
        rows_product(values[: len(cells)], weight, out=out[:count].view(len(cells), -1), bias=bias)
        # Cells of the finer level are distinct, so every row gets one addend.
        out.index_add_(0, fine.at(rows.fine_level.cells), rows.fine[:-1])
        relu_rows_(out[:count])

    def heat_logits(self, features: Tensor, pool: RowPool, *, out: Tensor) -> None:
        """See :meth:`NeckLayers.heat_logits`."""
        (hidden_weight, hidden_bias), (weight, bias) = self._heat
        hidden = pool.take(len(features), hidden_weight.shape[1])
        rows_product(features, hidden_weight, out=hidden, bias=hidden_bias, relu=True)
        exact = hidden
        if hidden.dtype != weight.dtype:
            exact = pool.take(len(hidden), hidden.shape[1], weight.dtype).copy_(hidden)
            pool.give(hidden)
        rows_product(exact, weight, out=out, bias=bias)
        pool.give(exact)


def convolutions_of(neck: Neck) -> list[DenseUnit]:
    """Return the 3x3 units in their order."""
    return [unit for block in neck.blocks for unit in _units(block)] + [neck.out]


def _units(block: nn.Module) -> tuple[DenseUnit, DenseUnit]:
    assert isinstance(block, DenseBlock)
    return block.first, block.second


def dense_bias(unit: DenseUnit) -> Tensor:
    """Return the bias (C_out,) of a folded unit."""
    assert unit.conv.bias is not None
    return unit.conv.bias


def matrix_of(layer: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return weight (C_in, C_out) and bias of a 1x1 layer."""
    assert layer.bias is not None
    return layer.weight[:, :, 0, 0].T.contiguous(), layer.bias
