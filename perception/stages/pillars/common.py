"""Sums of points by pillar, the same whatever their order."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.stages.pillars.types import FIXED_POINT


def local_points(points: Tensor, centres: Tensor) -> Tensor:
    """x and y from the middle of the pillar, and z: there, numbers are small and their sums accurate."""
    return torch.cat([points[:, :2] - centres, points[:, 2:3]], dim=1)


def sums_of(values: Tensor, rows: Tensor, capacity: int) -> Tensor:
    """Sums (capacity, C) int64 of the values (N, C) of each row, the same whatever their order."""
    sums = torch.zeros((capacity, values.shape[1]), dtype=torch.int64, device=values.device)
    return sums.index_add_(0, rows, whole(values))


def whole(values: Tensor) -> Tensor:
    """Nearest whole numbers of the fixed-point part, int64."""
    return torch.floor(values * FIXED_POINT + 0.5).long()


def mean_of(sums: Tensor, counts: Tensor) -> Tensor:
    """Means (M, C) from sums in whole numbers."""
    return sums.float() * (1 / FIXED_POINT) / counts[:, None]
