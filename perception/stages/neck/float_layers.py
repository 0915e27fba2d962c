"""Neck and heat map in float32 or bfloat16, by tiles."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.model.head import CentreHead
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows, bias_of
from perception.stages.neck.empty import EmptyScene
from perception.stages.neck.layers import NeckCells, NeckLayers, convolutions_of, matrix_of, taps_of
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
        weight = neck.up.conv.weight
        up, up_bias = weight.permute(0, 2, 3, 1).reshape(len(weight), -1), bias_of(neck.up).repeat(4)
        hidden_weight, hidden_bias = matrix_of(head.heat_hidden)
        empty = EmptyScene.of(neck, head, small)
        self._convolutions = [
            (tile_weight(taps_of(unit), dtype), bias_of(unit).to(dtype)) for unit in convolutions_of(neck)
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
