"""Packed weights of the head's kernels, and their results.

Matrices are (inputs, outputs). Inputs are padded with zeros to a multiple of 32 and outputs to a power of
two, at least 16, so that weights need no masks. Biases are float32, the precision of all sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.geometry import GroundGrid
from perception.model.head import BOX_CODE, CentreHead
from perception.model.layers import DenseUnit, SparseUnit

#: Dtypes of features and weights; sums are float32.
FEATURE_DTYPES = (torch.float16, torch.bfloat16, torch.float32)

_INPUT_STEP = 32
_SMALLEST_OUTPUT = 16


class UpWeights(NamedTuple):
    """Transposed 2x2 convolution of stride 2, and the 1x1 lateral convolution.

    Attributes:
        up: (4, C_in padded, C_out padded), by parity ``2 * (y % 2) + x % 2`` of the finer cell.
        lateral: (C_fine padded, C_out padded).
        up_bias, lateral_bias: (C_out padded,) float32.
        in_channels, fine_channels, out_channels: widths without padding.
    """

    up: Tensor
    lateral: Tensor
    up_bias: Tensor
    lateral_bias: Tensor
    in_channels: int
    fine_channels: int
    out_channels: int


class HeatWeights(NamedTuple):
    """The two 1x1 layers of the heat map.

    Attributes:
        hidden: (C padded, hidden padded).
        heat: (hidden padded, classes padded).
        hidden_bias, heat_bias: (hidden padded,) and (classes padded,) float32.
        in_channels, classes, hidden_channels: widths without padding.
    """

    hidden: Tensor
    heat: Tensor
    hidden_bias: Tensor
    heat_bias: Tensor
    in_channels: int
    classes: int
    hidden_channels: int


class BoxWeights(NamedTuple):
    """The three layers of the box codes, and their decoding.

    Attributes:
        hidden: (9, C padded, hidden padded), by cell of the patch in row-major order.
        middle: (hidden padded, hidden padded).
        box: (hidden padded, codes padded), class by class.
        hidden_bias, middle_bias, box_bias: float32, padded like the outputs.
        mean_sizes: (classes, 3) float32, metres.
        in_channels, classes: widths without padding.
        grid: grid of the map.
    """

    hidden: Tensor
    middle: Tensor
    box: Tensor
    hidden_bias: Tensor
    middle_bias: Tensor
    box_bias: Tensor
    mean_sizes: Tensor
    in_channels: int
    classes: int
    grid: GroundGrid


class Peaks(NamedTuple):
    """The highest local maxima of each frame's heat map, best first.

    Attributes:
        scores: (B, K) float32, descending; 0 after the last peak.
        labels: (B, K) int32 classes; -1 after the last peak.
        cells: (B, K) int32 ``iy * W + ix``; 0 after the last peak.
    """

    scores: Tensor
    labels: Tensor
    cells: Tensor


def pack_up(up: DenseUnit, lateral: SparseUnit | DenseUnit, dtype: torch.dtype) -> UpWeights:
    """Pack the weights of :func:`~perception.stages.head.fixed_up`.

    Args:
        up: ``neck.up`` of a folded :class:`~perception.model.network.Network`.
        lateral: ``backbone.lateral`` of the same network.
        dtype: float16, bfloat16 or float32.
    """
    _check_folded("neck.up", up)
    _check_folded("backbone.lateral", lateral)
    weight = up.conv.weight.detach()
    if not isinstance(up.conv, nn.ConvTranspose2d) or weight.shape[2:] != (2, 2) or up.conv.stride != (2, 2):
        raise ValueError("neck.up must be a transposed 2x2 convolution of stride 2")
    if tuple(lateral.conv.kernel_size) != (1, 1):
        raise ValueError(
            f"backbone.lateral must be a 1x1 convolution, got kernel size {lateral.conv.kernel_size}"
        )
    lateral_weight = lateral.conv.weight.detach().flatten(1)
    if len(lateral_weight) != weight.shape[1]:
        raise ValueError(f"neck.up gives {weight.shape[1]} channels, backbone.lateral {len(lateral_weight)}")
    return UpWeights(
        _packed(weight.permute(2, 3, 0, 1).flatten(0, 1), dtype),
        _packed(lateral_weight.mT, dtype),
        _packed_bias(up.conv.bias, weight.shape[1], weight.device),
        _packed_bias(lateral.conv.bias, weight.shape[1], weight.device),
        in_channels=weight.shape[0],
        fine_channels=lateral_weight.shape[1],
        out_channels=weight.shape[1],
    )


def pack_heat(head: CentreHead, dtype: torch.dtype) -> HeatWeights:
    """Pack the weights of :func:`~perception.stages.head.fixed_heat`."""
    hidden, heat = head.heat_hidden, head.heat
    return HeatWeights(
        _packed(hidden.weight.detach().flatten(1).mT, dtype),
        _packed(heat.weight.detach().flatten(1).mT, dtype, inputs=_padded_output(hidden.out_channels)),
        _packed_bias(hidden.bias, hidden.out_channels, hidden.weight.device),
        _packed_bias(heat.bias, heat.out_channels, heat.weight.device),
        in_channels=hidden.in_channels,
        classes=heat.out_channels,
        hidden_channels=hidden.out_channels,
    )


def pack_boxes(head: CentreHead, dtype: torch.dtype) -> BoxWeights:
    """Pack the weights of :func:`~perception.stages.head.fixed_boxes`."""
    hidden, middle, box = head.box_hidden, head.box_middle, head.box
    width = hidden.out_features
    in_channels = hidden.in_features // 9
    device = hidden.weight.device
    return BoxWeights(
        # Pad inputs to a power of two: one step per cell is faster than less padding.
        _packed(
            hidden.weight.detach().mT.reshape(9, in_channels, width),
            dtype,
            inputs=max(_INPUT_STEP, 1 << (in_channels - 1).bit_length()),
        ),
        _packed(middle.weight.detach().mT, dtype, inputs=_padded_output(width)),
        _packed(box.weight.detach().mT, dtype, inputs=_padded_output(width)),
        _packed_bias(hidden.bias, width, device),
        _packed_bias(middle.bias, width, device),
        _packed_bias(box.bias, box.out_features, device),
        head.mean_sizes.float().contiguous(),
        in_channels=in_channels,
        classes=box.out_features // BOX_CODE,
        grid=head.grid,
    )


def _padded_output(width: int) -> int:
    return max(_SMALLEST_OUTPUT, 1 << (width - 1).bit_length())


def _packed(matrix: Tensor, dtype: torch.dtype, *, inputs: int | None = None) -> Tensor:
    """Pad (…, inputs, outputs) with zeros; ``inputs`` is the width of an input that is padded already."""
    if dtype not in FEATURE_DTYPES:
        raise TypeError(f"dtype must be float16, bfloat16 or float32, got {dtype}")
    rows, columns = matrix.shape[-2:]
    padded = inputs or -(-rows // _INPUT_STEP) * _INPUT_STEP
    packed = matrix.new_zeros((*matrix.shape[:-2], padded, _padded_output(columns)), dtype=dtype)
    packed[..., :rows, :columns] = matrix.to(dtype)
    return packed


def _packed_bias(bias: Tensor | None, width: int, device: torch.device) -> Tensor:
    packed = torch.zeros(_padded_output(width), dtype=torch.float32, device=device)
    if bias is not None:
        packed[:width] = bias.detach().float()
    return packed


def _check_folded(name: str, unit: DenseUnit | SparseUnit) -> None:
    if not isinstance(unit.norm, nn.Identity):
        raise ValueError(f"{name} has a batch norm. Fold the network first: network.fold()")
