"""Linear keys of grid coordinates, shared by the implementations of the table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Cells of padding on either side of every spatial axis: a kernel tap that leaves the grid by up to
#: this many cells still has a key of its own, so it cannot alias a cell of the next row.
MARGIN = 4


def key_strides(spatial_shape: Sequence[int]) -> list[int]:
    """Strides of ``(batch, *spatial)`` in the padded linear key, last axis fastest."""
    strides = [1]
    for size in reversed(spatial_shape):
        strides.append(strides[-1] * (int(size) + 2 * MARGIN))
    return strides[::-1]


def linear_keys(coordinates: Tensor, spatial_shape: Sequence[int]) -> Tensor:
    """Keys that sort like ``(batch, *spatial)``.

    Args:
        coordinates: (N, 1 + D) integer; spatial entries may lie up to ``MARGIN`` outside the grid.
        spatial_shape: D sizes of the grid in cells.

    Returns:
        (N,) int64.
    """
    strides = key_strides(spatial_shape)
    columns = coordinates.long()
    keys = columns[:, 0] * strides[0]
    for axis, stride in enumerate(strides[1:], start=1):
        keys = keys + (columns[:, axis] + MARGIN) * stride
    return keys


def coordinates_from_keys(keys: Tensor, spatial_shape: Sequence[int]) -> Tensor:
    """Inverse of :func:`linear_keys`: (M, 1 + D) int32."""
    strides = key_strides(spatial_shape)
    columns = []
    rest = keys
    for axis, stride in enumerate(strides):
        column = torch.div(rest, stride, rounding_mode="floor")
        rest = rest - column * stride
        columns.append(column if axis == 0 else column - MARGIN)
    return torch.stack(columns, dim=1).to(torch.int32)
