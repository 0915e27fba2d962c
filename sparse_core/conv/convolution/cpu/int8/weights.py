"""Weights of layers that read bytes, and the numbers that bytes represent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sparse_core.nm.packing.quantisation import quantise_weight

#: Widths of rows are multiples of this.
LANES = 16


class ByteScale(NamedTuple):
    """A byte ``b`` represents ``(b - zero) * step``."""

    step: float
    zero: int = 0

    @classmethod
    def of(cls, largest: float, *, signed: bool = False) -> ByteScale:
        """Return the scale for numbers from 0, or from ``-largest`` if ``signed``, to ``largest``."""
        return cls(largest / 127, 128) if signed else cls(largest / 255)


@dataclass(frozen=True, eq=False)
class ByteLayer:
    """A layer from bytes to bytes, or to numbers that are not negative.

    Attributes:
        weight: (K, width, out_width) int8.
        packed: (K, width / 4, out_width / 16, 16, 4) int8, the same for vector registers.
        kept: (K, width / 8, out_width / 16, 16, 4) int8 weights of 2:4 layers without zeros; None for others.
        places: uint8 of that shape, input channel of each among its eight.
        scale, bias, residual_scale: (out_width,) float32 in steps of the output.
        floats: the output is float32.
    """

    weight: Tensor
    packed: Tensor
    kept: Tensor | None
    places: Tensor | None
    scale: Tensor
    bias: Tensor
    residual_scale: Tensor
    floats: bool

    @property
    def width(self) -> int:
        """Return the width of input rows."""
        return self.weight.shape[1]

    @property
    def out_width(self) -> int:
        """Return the width of output rows."""
        return self.weight.shape[2]


def padded(channels: int) -> int:
    """Return the width of rows with this many channels."""
    return -(-channels // LANES) * LANES


def pack_layer(
    weight: Tensor,
    bias: Tensor,
    *,
    in_scale: ByteScale,
    out_scale: ByteScale | None,
    residual_scale: ByteScale | None = None,
) -> ByteLayer:
    """Round the weights of each output channel to 8 bits with their own scale.

    Args:
        weight: (K, C_in, C_out) float32.
        bias: (C_out,) float32.
        in_scale: numbers of the input; ``zero`` must be 0.
        out_scale: numbers of the output; negative ones become 0 if its ``zero`` is 0. None: float32 that are
            not negative.
        residual_scale: numbers of the residual.
    """
    if in_scale.zero:
        raise ValueError("the input of a layer has missing rows, which are zero: in_scale.zero must be 0")
    taps, channels, outputs = weight.shape
    rounded, steps = quantise_weight(weight.permute(2, 0, 1).reshape(outputs, -1))
    integers = rounded.view(outputs, taps, channels).permute(1, 2, 0)
    integers = F.pad(integers, (0, padded(outputs) - outputs, 0, padded(channels) - channels)).contiguous()
    step = 1.0 if out_scale is None else out_scale.step
    shift = bias.detach().double() / step + (0 if out_scale is None else out_scale.zero)
    factor = 0.0
    if residual_scale is not None:
        factor = residual_scale.step / step
        shift -= residual_scale.zero * factor
    more = (0, padded(outputs) - outputs)
    kept, places = _without_zeros(integers)
    return ByteLayer(
        integers,
        _by_lanes(integers),
        kept,
        places,
        F.pad(steps.double() * (in_scale.step / step), more).float(),
        F.pad(shift, more).float(),
        F.pad(torch.full((outputs,), factor), more),
        out_scale is None,
    )


def _by_lanes(values: Tensor) -> Tensor:
    """Order values (K, rows, out_width) so that a register holds four rows of 16 outputs."""
    taps, rows, out_width = values.shape
    return values.view(taps, rows // 4, 4, out_width // LANES, LANES).permute(0, 1, 3, 4, 2).contiguous()


def _without_zeros(weight: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return the nonzero weights of a 2:4 layer and their places among eight, by lanes; else None twice."""
    taps, width, out_width = weight.shape
    groups = weight.view(taps, width // 4, 4, out_width)
    if int((groups != 0).sum(2).max()) > 2:
        return None, None
    # Nonzero weights first, in their order.
    order = torch.argsort((groups == 0).to(torch.uint8), dim=2, stable=True)[:, :, :2]
    kept = groups.gather(2, order)
    places = order + 4 * (torch.arange(width // 4) % 2)[:, None, None]
    half = taps, width // 2, out_width
    return _by_lanes(kept.reshape(half)), _by_lanes(places.to(torch.uint8).reshape(half))
