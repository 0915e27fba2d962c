"""Layers of the head in plain torch, with the rounding of the kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from perception.model.head import BOX_CODE, decode_boxes
from perception.stages.head.types import BoxWeights


def boxes_of(patch: Callable[[int], Tensor], cells: Tensor, labels: Tensor, weights: BoxWeights) -> Tensor:
    """Compute boxes (N, 7) float32 from the 3x3 cells around peaks; zeros for label -1.

    Args:
        patch: returns features (N, C) of the cells at a tap, row-major.
        cells: (N, 2) column and row in tables of the map's cells.
        labels: (N,) int64, -1 for no box.
        weights: from :func:`pack_boxes`.
    """
    sums = torch.zeros(len(cells), weights.hidden.shape[2], device=cells.device, dtype=torch.float32)
    for tap, matrix in enumerate(weights.hidden):
        sums += product(patch(tap), matrix)
    dtype = weights.hidden.dtype
    hidden = hidden_of(sums, weights.hidden_bias, dtype)
    hidden = hidden_of(product(hidden, weights.middle), weights.middle_bias, dtype)
    codes = product(hidden, weights.box) + weights.box_bias
    known = labels.clamp(min=0)
    codes = codes.gather(1, known[:, None] * BOX_CODE + torch.arange(BOX_CODE, device=codes.device))
    decoded = decode_boxes(codes, cells, weights.mean_sizes[known], weights.grid)
    return torch.where(labels[:, None] >= 0, decoded, 0.0)


def product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiply rows (N, C) by a packed matrix in float32."""
    return rows.float() @ matrix[: rows.shape[1]].float()


def hidden_of(sums: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Apply bias, ReLU and rounding of a hidden layer."""
    return torch.relu(sums + bias).to(dtype)
