"""Sizes and cells of convolutions over grids; every argument has one entry per spatial axis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

#: Most frames that linear keys can number, see ``sparse_core.conv.coordinates``.
MOST_FRAMES = 2**20


def taps(kernel_size: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the taps of a kernel in row-major order, each from 0 to size - 1 per axis."""
    return list(itertools.product(*(range(size) for size in kernel_size)))


def output_shape(
    spatial_shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the grid of a strided convolution, as in ``torch.nn.functional.conv2d``."""
    dilations = [1] * len(spatial_shape) if dilation is None else dilation
    return tuple(
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, gap in zip(
            spatial_shape, kernel_size, stride, padding, dilations, strict=True
        )
    )


def transposed_shape(
    spatial_shape: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[int, ...]:
    """Return the grid of a transposed convolution, as in ``torch.nn.functional.conv_transpose2d``."""
    return tuple(
        (size - 1) * step - 2 * pad + gap * (kernel - 1) + more + 1
        for size, kernel, step, pad, gap, more in zip(
            spatial_shape, kernel_size, stride, padding, dilation, output_padding, strict=True
        )
    )


def own_cells(coordinates: Tensor, stride: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Return the stride-sized cell of each cell; the last one of an axis also takes cells beyond it.

    Args:
        coordinates: (N, 1 + D) integer ``(batch, *spatial)``.
        shape: of the grid of stride-sized cells.

    Returns:
        (N, 1 + D) int64.
    """
    step = torch.tensor([1, *stride], device=coordinates.device)
    last = torch.tensor([MOST_FRAMES, *shape], device=coordinates.device) - 1
    return torch.minimum(torch.div(coordinates, step, rounding_mode="floor"), last)
