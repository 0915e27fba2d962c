"""Pillar encoder: one feature vector per occupied pillar."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perception.config import PillarConfig
from perception.model.layers import PointUnit
from perception.model.pillars import Pillars
from perception.model.segments import segment_reduce
from sparse_core.conv import SparseTensor

#: x, y, z, intensity; offset from the pillar's centre (2) and from its mean (3). Several sweeps add the age.
POINT_FEATURES = 4 + 2 + 3
#: Mean height and logarithm of the number of points.
_PILLAR_FEATURES = 2


class PillarEncoder(nn.Module):
    """Pillar features from points: two shared layers, a maximum after each (PointNet, PointPillars)."""

    def __init__(self, config: PillarConfig) -> None:
        super().__init__()
        self.config = config
        width = config.channels
        self.points = PointUnit(POINT_FEATURES + config.columns - 4, width // 2)
        self.pillars = PointUnit(width + _PILLAR_FEATURES, width)

    def forward(self, pillars: Pillars) -> SparseTensor:
        """Compute features (M, channels) as a sparse tensor."""
        return SparseTensor.from_table(self.rows(pillars), pillars.table, pillars.batch_size)

    def rows(self, pillars: Pillars) -> Tensor:
        """Compute features (M, channels) of the active pillars."""
        points, rows, counts = pillars.points, pillars.rows, pillars.counts
        size = self.config.pillar_size_m
        grid = self.config.grid
        centre = grid.metres_of(grid.positions_of_cells(pillars.table.coordinates[:, 1:].flip(1)) + 0.5)
        # Points are sorted by pillar, so sums run in one fixed order.
        mean = segment_reduce(points[:, :3], counts, "mean")
        features = torch.cat(
            [
                points[:, :2] / 40.0,
                points[:, 2:4],
                (points[:, :2] - centre.index_select(0, rows)) / size,
                points[:, :3] - mean.index_select(0, rows),
                *([points[:, 4:]] if self.config.sweeps > 1 else []),
            ],
            dim=1,
        )
        hidden = self.points(features)
        peak = segment_reduce(hidden, counts, "max")
        average = segment_reduce(hidden, counts, "mean")
        height = mean[:, 2:3]
        summary = torch.cat([peak, average.to(peak.dtype), height, torch.log(counts.float())[:, None]], dim=1)
        made: Tensor = self.pillars(summary)
        return made
