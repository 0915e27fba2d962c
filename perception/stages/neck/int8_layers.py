"""Neck and heat map in bytes, with exact sums."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.model.head import CentreHead
from perception.model.layers import DenseUnit
from perception.model.listed_map import ByteMap, FeatureMap, ListedMap
from perception.model.neck import Neck
from perception.stages.backbone.cpu import BackboneRows, bias_of
from perception.stages.neck.empty import EmptyScene
from perception.stages.neck.layers import NeckCells, NeckLayers, convolutions_of, matrix_of, taps_of
from perception.stages.scales import Scales
from sparse_core.conv.convolution.cpu.blocks import RowPool, rows_product
from sparse_core.conv.convolution.cpu.int8 import ByteLayer, ByteScale, byte_layer, pack_layer, padded


class Int8Layers(NeckLayers):
    """Layers of bytes; the last layer of the heat map is float32, to keep the order of scores.

    Args:
        neck, head: folded.
        small: shape of the empty scene.
        scales: numbers of the bytes after each layer.
        coarse, fine: numbers of the backbone's output.
    """

    def __init__(
        self,
        neck: Neck,
        head: CentreHead,
        small: tuple[int, int],
        *,
        scales: Scales,
        coarse: ByteScale,
        fine: ByteScale,
    ) -> None:
        before = coarse
        self._convolutions: list[ByteLayer] = []
        *blocks, last = convolutions_of(neck)
        for first, second in zip(blocks[::2], blocks[1::2], strict=True):
            hidden = scales.of(first)
            self._convolutions.append(_convolution(first, before, hidden))
            self._convolutions.append(_convolution(second, hidden, scales.of(second), before))
            before = scales.of(second)
        raised, self._features = scales.of(neck.up), scales.of(last)
        self._convolutions.append(_convolution(last, raised, self._features))
        #: The four outputs of a cell are adjacent, each of a padded width.
        self._lateral_zero, self._channels = fine.zero, last.conv.out_channels
        weight = neck.up.conv.weight
        more = (0, padded(weight.shape[1]) - weight.shape[1])
        up = F.pad(weight.permute(0, 2, 3, 1), more).reshape(1, len(weight), -1)
        self._up = pack_layer(
            up,
            F.pad(bias_of(neck.up), more).repeat(4),
            in_scale=before,
            out_scale=raised,
            residual_scale=fine,
        )
        hidden_weight, hidden_bias = matrix_of(head.heat_hidden)
        self._hidden = pack_layer(hidden_weight[None], hidden_bias, in_scale=self._features, out_scale=None)
        heat_weight, self._heat_bias = matrix_of(head.heat)
        self._heat_weight = F.pad(heat_weight, (0, 0, 0, self._hidden.out_width - len(heat_weight)))
        self.empty = self._empty_scene(small)

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
        table, layer = before.neighbours_of(after), self._convolutions[index]
        byte_layer(values, layer, out=out[: len(after)], table=table, residual=residual)

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
        lateral = pool.take(len(fine), out.shape[1], out.dtype)
        lateral.fill_(self._lateral_zero)
        lateral.index_copy_(0, fine.at(rows.fine_level.cells).long(), rows.fine[:-1])
        self._raise(values[: len(cells)], lateral, out[: len(fine)])
        pool.give(lateral)

    def heat_logits(self, features: Tensor, pool: RowPool, *, out: Tensor) -> None:
        """See :meth:`NeckLayers.heat_logits`."""
        hidden = pool.take(len(features), self._hidden.out_width, torch.float32)
        byte_layer(features, self._hidden, out=hidden)
        rows_product(hidden, self._heat_weight, out=out, bias=self._heat_bias)
        pool.give(hidden)

    def as_numbers(self, features: Tensor | ListedMap) -> FeatureMap:
        """See :meth:`NeckLayers.as_numbers`."""
        if isinstance(features, ListedMap):
            return features._replace(values=features.values[:, : self._channels], step=self._features.step)
        return ByteMap(features.permute(0, 2, 3, 1)[..., : self._channels], self._features.step)

    def _raise(self, values: Tensor, lateral: Tensor, out: Tensor) -> None:
        four = len(values), -1
        byte_layer(values, self._up, out=out.view(four), residual=lateral.view(four))

    def _empty_scene(self, small: tuple[int, int]) -> EmptyScene:
        """Run the layers on an empty map."""
        cells = torch.arange(small[0] * small[1], dtype=torch.int32).view(small)
        # The finer cells of a cell are adjacent.
        fine_cells = F.pixel_shuffle((4 * cells + torch.arange(4, dtype=torch.int32)[:, None, None])[None], 2)
        coarse, fine = (_neighbours(each) for each in (cells, fine_cells[0, 0]))
        values = torch.zeros((cells.numel(), self._up.width), dtype=torch.uint8)
        inputs = [values]
        *blocks, last = self._convolutions
        for first, second in zip(blocks[::2], blocks[1::2], strict=True):
            hidden = _dense(values, first, coarse)
            values = _dense(hidden, second, coarse, values)
            inputs += [hidden, values]
        raised = torch.empty((4 * len(values), last.width), dtype=torch.uint8)
        self._raise(values, torch.full_like(raised, self._lateral_zero), raised)
        features = _dense(raised, last, fine)
        heat = torch.empty((len(features), self._heat_weight.shape[1]))
        self.heat_logits(features, RowPool(torch.uint8), out=heat)
        return EmptyScene(inputs, raised, features, heat)


def _convolution(
    unit: DenseUnit, in_scale: ByteScale, out_scale: ByteScale, residual_scale: ByteScale | None = None
) -> ByteLayer:
    return pack_layer(
        taps_of(unit), bias_of(unit), in_scale=in_scale, out_scale=out_scale, residual_scale=residual_scale
    )


def _neighbours(rows: Tensor) -> Tensor:
    """Return the rows (H * W, 9) around each cell of a map (H, W) of rows, in the order of the rows."""
    around = F.pad(rows, (1, 1, 1, 1), value=rows.numel())
    height, width = rows.shape
    shifted = [around[dy : dy + height, dx : dx + width].flatten() for dy in range(3) for dx in range(3)]
    return torch.stack(shifted, dim=1)[rows.flatten().argsort()]


def _dense(rows: Tensor, layer: ByteLayer, table: Tensor, residual: Tensor | None = None) -> Tensor:
    """Run a 3x3 layer on all rows."""
    with_zero = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    out = torch.empty((len(rows), layer.out_width), dtype=torch.uint8)
    return byte_layer(with_zero, layer, out=out, table=table, residual=residual)
