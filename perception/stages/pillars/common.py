"""Sums of points by pillar, the same whatever their order, and the layers of the encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.stages.pillars.types import FIXED_POINT
from perception.stages.pillars.weights import EncoderWeights


def local_points(points: Tensor, centres: Tensor) -> Tensor:
    """x and y from the middle of the pillar, and z: there, numbers are small and their sums accurate."""
    return torch.cat([points[:, :2] - centres, points[:, 2:3]], dim=1)


def sums_of(values: Tensor, rows: Tensor, capacity: int) -> Tensor:
    """Sums (capacity, C) int64 of the values (N, C) of each row, the same whatever their order."""
    return whole_sums(whole(values), rows, capacity)


def whole_sums(values: Tensor, rows: Tensor, capacity: int) -> Tensor:
    """Sums (capacity, C) int64 of whole numbers (N, C)."""
    return values.new_zeros((capacity, values.shape[1])).index_add_(0, rows, values)


def whole(values: Tensor) -> Tensor:
    """Nearest whole numbers of the fixed-point part, int64."""
    return torch.floor(values * FIXED_POINT + 0.5).long()


def mean_of(sums: Tensor, counts: Tensor) -> Tensor:
    """Means (M, C) from sums in whole numbers."""
    return sums.float() * (1 / FIXED_POINT) / counts[:, None]


def encode_points(
    points: Tensor,
    local: Tensor,
    rows: Tensor,
    sums: Tensor,
    weights: EncoderWeights,
    dtype: torch.dtype,
    taken: Tensor | None = None,
) -> Tensor:
    """Return the features (capacity, C) of pillars.

    Args:
        points: (N, 4); local: (N, 3) of :func:`local_points`; rows: (N,) int64 pillar of each.
        sums: (capacity, 4) int64 of ``local`` in whole numbers, and points of each pillar.
        weights: of the encoder.
        dtype: of the features.
        taken: (N, 1) bool: which points count; None: all.
    """
    capacity, counts = len(sums), sums[:, 3].clamp(min=1)
    mean = mean_of(sums[:, :3], counts)
    features = torch.cat(
        [points[:, :2] / 40.0, points[:, 2:4], local[:, :2] / weights.grid.cell_m, local - mean[rows]], dim=1
    )
    hidden = torch.relu(features @ weights.point_weight + weights.point_bias)
    # No feature is negative: a point that adds zero changes neither maximum nor sum.
    hidden = hidden if taken is None else torch.where(taken, hidden, 0.0)
    peak = hidden.new_zeros((capacity, hidden.shape[1]))
    peak.scatter_reduce_(0, rows[:, None].expand_as(hidden), hidden, "amax")
    average = mean_of(sums_of(hidden, rows, capacity), counts)
    summary = torch.cat([peak, average, mean[:, 2:], torch.log(counts.float())[:, None]], dim=1)
    return torch.relu(summary @ weights.pillar_weight + weights.pillar_bias).to(dtype)
