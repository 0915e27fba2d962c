"""Sums of points by pillar that do not depend on their order, and the layers of the encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.stages.pillars.types import FIXED_POINT
from perception.stages.pillars.weights import EncoderWeights


def local_points(points: Tensor, centres: Tensor) -> Tensor:
    """Return x and y relative to the pillar centre, and z: small numbers have accurate sums."""
    return torch.cat([points[:, :2] - centres, points[:, 2:3]], dim=1)


def sums_of(values: Tensor, rows: Tensor, capacity: int) -> Tensor:
    """Sum values (N, C) by row in fixed point: (capacity, C) int64, in any order."""
    return whole_sums(whole(values), rows, capacity)


def whole_sums(values: Tensor, rows: Tensor, capacity: int) -> Tensor:
    """Sum whole numbers (N, C) by row: (capacity, C) int64."""
    return values.new_zeros((capacity, values.shape[1])).index_add_(0, rows, values)


def whole(values: Tensor) -> Tensor:
    """Round to fixed point, int64."""
    return torch.floor(values * FIXED_POINT + 0.5).long()


def mean_of(sums: Tensor, counts: Tensor) -> Tensor:
    """Return means (M, C) from fixed-point sums."""
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
    """Compute pillar features (capacity, C).

    Args:
        points: (N, C); local: (N, 3) from :func:`local_points`; rows: (N,) int64 pillar of each point.
        sums: (capacity, 4) int64 fixed-point sums of ``local``, and the number of points.
        taken: (N, 1) bool, False for points to ignore; None: all count.
    """
    capacity, counts = len(sums), sums[:, 3].clamp(min=1)
    mean = mean_of(sums[:, :3], counts)
    parts = [points[:, :2] / 40.0, points[:, 2:4], local[:, :2] / weights.grid.cell_m, local - mean[rows]]
    features = torch.cat(parts if points.shape[1] == 4 else [*parts, points[:, 4:]], dim=1)
    hidden = torch.relu(features @ weights.point_weight + weights.point_bias)
    # Features are not negative, so zeros change neither maximum nor sum.
    hidden = hidden if taken is None else torch.where(taken, hidden, 0.0)
    peak = hidden.new_zeros((capacity, hidden.shape[1]))
    peak.scatter_reduce_(0, rows[:, None].expand_as(hidden), hidden, "amax")
    average = mean_of(sums_of(hidden, rows, capacity), counts)
    summary = torch.cat([peak, average, mean[:, 2:], torch.log(counts.float())[:, None]], dim=1)
    return torch.relu(summary @ weights.pillar_weight + weights.pillar_bias).to(dtype)
