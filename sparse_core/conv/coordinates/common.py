"""Linear keys of grid coordinates, shared by the implementations of the table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_core.conv.geometry import taps

#: Cells of padding on either side of every spatial axis. A tap up to this many cells outside the grid has a
#: unique key, so it cannot alias a cell of the next row.
MARGIN = 4


def key_strides(spatial_shape: Sequence[int]) -> list[int]:
    """Return strides of ``(batch, *spatial)`` in the padded linear key, last axis fastest."""
    strides = [1]
    for size in reversed(spatial_shape):
        strides.append(strides[-1] * (int(size) + 2 * MARGIN))
    return strides[::-1]


def key_offsets(kernel_size: Sequence[int], centre: Sequence[int], spatial_shape: Sequence[int]) -> list[int]:
    """Return the key of each tap minus that of the tap at ``centre``; taps row-major."""
    strides = key_strides(spatial_shape)[1:]
    return [
        sum((place - middle) * stride for place, middle, stride in zip(tap, centre, strides, strict=True))
        for tap in taps(kernel_size)
    ]


def linear_keys(coordinates: Tensor, spatial_shape: Sequence[int]) -> Tensor:
    """Return keys (N,) int64 that sort like ``(batch, *spatial)``.

    Args:
        coordinates: (N, 1 + D) integer; spatial entries may lie up to ``MARGIN`` outside the grid.
        spatial_shape: D sizes of the grid in cells.
    """
    strides = key_strides(spatial_shape)
    columns = coordinates.long()
    keys = columns[:, 0] * strides[0]
    for axis, stride in enumerate(strides[1:], start=1):
        keys = keys + (columns[:, axis] + MARGIN) * stride
    return keys


def coordinates_from_keys(keys: Tensor, spatial_shape: Sequence[int]) -> Tensor:
    """Invert :func:`linear_keys`: (M, 1 + D) int32."""
    strides = key_strides(spatial_shape)
    columns = []
    rest = keys
    for axis, stride in enumerate(strides):
        column = torch.div(rest, stride, rounding_mode="floor")
        rest = rest - column * stride
        columns.append(column if axis == 0 else column - MARGIN)
    return torch.stack(columns, dim=1).to(torch.int32)
