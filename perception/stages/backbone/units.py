"""Convolutions of a folded network, packed for fixed capacities."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.layers import DenseBlock, DenseUnit, SparseBlock, SparseUnit
from sparse_core.conv.convolution import ConvolutionConfig, fixed_convolution, pack_weight
from sparse_core.conv.convolution.plan import Shape
from sparse_core.conv.convolution.tuned import chosen_config
from sparse_core.kernels.op import Impl


class Unit(NamedTuple):
    """A convolution: weight (taps, C_in, C_out) in the features' dtype, bias (C_out,) float32."""

    weight: Tensor
    bias: Tensor | None
    relu: bool

    def tiles(self, rows: int) -> ConvolutionConfig:
        """Return the tiles for about this number of rows."""
        taps, channels_in, channels_out = self.weight.shape
        shape = Shape(max(1, rows), channels_in, channels_out, taps, self.weight.dtype)
        return chosen_config(shape, self.weight.device)

    def convolve(
        self,
        rows: Tensor,
        table: Tensor,
        used: Tensor | None,
        usual: int,
        *,
        impl: Impl,
        residual: Tensor | None = None,
        zero_empty: bool = False,
        ready: bool = True,
    ) -> Tensor:
        """Run :func:`~sparse_core.conv.convolution.fixed_convolution` with tiles for ``usual`` rows."""
        return fixed_convolution(
            rows,
            self.weight,
            table,
            used,
            bias=self.bias,
            residual=residual,
            relu=self.relu,
            zero_empty=zero_empty,
            ready=ready,
            impl=impl,
            config=self.tiles(usual),
        )


def usual_rows(active: int, capacity: int) -> int:
    """Return the number of rows to tile for, after a frame that used ``active`` of ``capacity``."""
    # An empty frame predicts nothing. A tile that is too large costs less than a second wave of tiles.
    return min(max(active + active // 4, capacity // 8), capacity) if active else max(1, capacity // 2)


def pack_unit(unit: nn.Module, dtype: torch.dtype) -> Unit:
    """Pack a folded unit, sparse or dense."""
    assert isinstance(unit, SparseUnit | DenseUnit)
    if not isinstance(unit.norm, nn.Identity):
        raise ValueError("the network has batch norms. Fold it first: network.fold()")
    weight = unit.conv.weight.detach()
    if isinstance(unit, DenseUnit):
        weight = weight.permute(0, 2, 3, 1)
    bias = unit.conv.bias
    return Unit(
        pack_weight(weight.to(dtype)), None if bias is None else bias.detach().float().contiguous(), unit.relu
    )


def pack_block(block: nn.Module, dtype: torch.dtype) -> tuple[Unit, Unit]:
    """Pack both convolutions of a residual block, see :func:`pack_unit`."""
    assert isinstance(block, SparseBlock | DenseBlock)
    return pack_unit(block.first, dtype), pack_unit(block.second, dtype)
