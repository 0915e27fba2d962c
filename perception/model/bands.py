"""CPU convolutions in bands of rows, with the same bits for any number of threads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparse_core.common.workers import is_shareable, share_tasks

#: Multiply-adds per band: a few milliseconds, so that the overhead of a call does not matter.
_BAND_WORK = 1 << 29


def convolve_map(
    layer: nn.Module, features: Tensor, skip: Tensor | None = None, *, relu: bool = False
) -> Tensor:
    """Return ``relu(layer(features) + skip)`` in new memory.

    On a CPU without gradients, one thread computes each band of rows. Band sizes depend on the shapes only,
    so results do not depend on the number of threads, unlike those of threaded libraries.

    Args:
        layer: any module. Convolutions without hooks, and transposed ones with kernel size equal to stride,
            are split into bands; others run in one thread.
        features: (B, C_in, H, W).
        skip: tensor of the output's shape to add.

    Returns:
        (B, C_out, H', W').
    """
    if not is_shareable(features):
        made: Tensor = layer(features)
        return activated(made, skip, relu)
    if _has_bands(layer):
        assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        return _in_bands(layer, features, skip, relu)
    whole: list[Tensor] = []
    share_tasks(lambda _: whole.append(layer(features)), 1)
    return activated(whole[0], skip, relu)


def activated(features: Tensor, skip: Tensor | None, relu: bool) -> Tensor:
    """Add ``skip`` and apply the ReLU, in place unless gradients are enabled."""
    in_place = not torch.is_grad_enabled()
    if skip is not None:
        features = features.add_(skip) if in_place else features + skip
    if relu:
        features = torch.relu_(features) if in_place else torch.relu(features)
    return features


def _has_bands(layer: nn.Module) -> bool:
    if layer._forward_hooks or layer._forward_pre_hooks:
        return False
    if type(layer) is nn.ConvTranspose2d:
        plain = layer.padding == layer.output_padding == (0, 0) and layer.dilation == (1, 1)
        return plain and layer.groups == 1 and layer.kernel_size == layer.stride
    return type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _in_bands(
    layer: nn.Conv2d | nn.ConvTranspose2d, features: Tensor, skip: Tensor | None, relu: bool
) -> Tensor:
    frames, _, *sizes = features.shape
    rows, columns = (_output_size(layer, axis, size) for axis, size in enumerate(sizes))
    height = _band_height(layer, columns)
    channels_last = layer.weight.is_contiguous(memory_format=torch.channels_last)
    out = torch.empty(
        (frames, layer.out_channels, rows, columns),
        dtype=torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else features.dtype,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )
    bands = [(frame, first) for frame in range(frames) for first in range(0, rows, height)]

    def compute(number: int) -> None:
        frame, first = bands[number]
        band = out[frame : frame + 1, :, first : first + height]
        made = _band(layer, features[frame : frame + 1], first, first + band.shape[2])
        if skip is not None:
            made.add_(skip[frame : frame + 1, :, first : first + height])
        if relu:
            torch.clamp(made, min=0, out=band)
        else:
            band.copy_(made)

    share_tasks(compute, len(bands))
    return out


def _output_size(layer: nn.Conv2d | nn.ConvTranspose2d, axis: int, size: int) -> int:
    """Return the rows (axis 0) or columns (axis 1) of the output."""
    stride = layer.stride[axis]
    if isinstance(layer, nn.ConvTranspose2d):
        return size * stride
    return (size + 2 * int(layer.padding[axis]) - _reach(layer, axis)) // stride + 1


def _reach(layer: nn.Conv2d, axis: int) -> int:
    """Return the rows or columns that one output reads."""
    return layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1


def _band_height(layer: nn.Conv2d | nn.ConvTranspose2d, columns: int) -> int:
    """Return the output rows of a band."""
    rows = layer.stride[0] if isinstance(layer, nn.ConvTranspose2d) else 1
    taps = 1 if isinstance(layer, nn.ConvTranspose2d) else layer.kernel_size[0] * layer.kernel_size[1]
    work = columns * layer.in_channels * layer.out_channels // layer.groups * taps * rows
    return rows * max(1, _BAND_WORK // max(1, work))


def _band(layer: nn.Conv2d | nn.ConvTranspose2d, features: Tensor, first: int, end: int) -> Tensor:
    """Compute the output rows ``first`` to ``end`` of a frame."""
    stride = layer.stride[0]
    if isinstance(layer, nn.ConvTranspose2d):
        given = features[:, :, first // stride : end // stride]
        return F.conv_transpose2d(given, layer.weight, layer.bias, layer.stride)
    start = first * stride - int(layer.padding[0])
    stop = (end - 1) * stride - int(layer.padding[0]) + _reach(layer, 0)
    height = features.shape[2]
    given = features[:, :, max(0, start) : min(stop, height)]
    missing = max(0, -start), max(0, stop - height)
    if any(missing):
        given = F.pad(given, (0, 0, *missing))
    padding = (0, int(layer.padding[1]))
    return F.conv2d(given, layer.weight, layer.bias, layer.stride, padding, layer.dilation, layer.groups)
