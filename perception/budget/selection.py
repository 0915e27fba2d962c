"""Which pillars matter, told from the heights of their points alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perception.config import PillarConfig

#: Height of a pillar's highest point, in the LiDAR frame, that speaks most for an object: a metre above a
#: road that lies 1.7 m below the sensor, as in the data that the shipped weights were trained on.
TYPICAL_TOP_M = -0.4
#: Pillars are ranked in steps of this much, so that a rank needs no sorting.
_STEP_M = 0.02
_STEPS = 256
#: Points that a GPU leaves out are moved here: finite, and out of every range.
_AWAY_M = 1e30


@torch.inference_mode()
def important_points(points: Tensor, config: PillarConfig, share: float) -> Tensor:
    """The points of the most important pillars.

    A pillar matters by its highest point: the closer to a metre above the road, the more. Empty road falls
    out first, then crowns of trees and walls. Points that lie on the road beside an object go with their
    pillar, and all points of a pillar stay or go together.

    Nothing is read back from a GPU and every shape is known beforehand, but of a detector without a range.
    The choice does not depend on the order of the points.

    Args:
        points: (N, 4) float32 x, y, z (metres, LiDAR frame), intensity.
        config: the grid of pillars.
        share: of the pillars, above 0, at most 1. Pillars of equal rank, within 2 cm, stay together, so that
            somewhat more may be kept.

    Returns:
        On a CPU the points that stay, in their order; what is not finite stays and is reported by the
        detector. On a GPU all points, those that go moved out of range.

    Raises:
        ValueError: a share out of range.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0, at most 1, got {share}")
    if share == 1 or len(points) == 0:
        return points
    grid = config.grid
    rows, columns = grid.key_shape
    inside = torch.isfinite(points[:, 3]) & grid.contains(*points.T[:3])
    row, column = grid.cell_of(points[:, 0], points[:, 1])
    # Of the pillars on a CPU, to the bit.
    outside = rows * columns
    if config.open:
        # No array has a place for every cell: those that hold points get numbers.
        cells = torch.where(inside, row.long() * columns + column, outside)
        cells = torch.unique(torch.cat([cells, cells.new_tensor([outside])]), return_inverse=True)[1]
        cells, outside = cells[:-1], int(cells[-1])
    else:
        cells = torch.where(inside, row * columns + column, outside).long()
    top = points.new_full((outside + 1,), -math.inf)
    top.scatter_reduce_(0, cells, points[:, 2], "amax")
    steps = ((top[cells] - TYPICAL_TOP_M).abs() / _STEP_M).clamp(max=_STEPS - 1)
    steps = torch.where(inside, steps, _STEPS - 1).long()
    # One point of each pillar stands for it, whichever.
    number = torch.arange(len(points), device=points.device)
    stands = torch.empty_like(top, dtype=torch.int64).scatter_(0, cells, number)[cells] == number
    pillars = torch.zeros(_STEPS, dtype=torch.int64, device=points.device)
    pillars.index_add_(0, steps, (stands & inside).long())
    below = torch.cumsum(pillars, 0)
    # The step in which the wanted number of pillars is reached is kept whole.
    limit = (below < below[-1] * share).sum()
    keep = inside & (steps <= limit)
    broken = ~torch.isfinite(points).all(dim=1)
    if points.is_cuda:
        return torch.where((keep | broken)[:, None], points, _AWAY_M)
    return points[keep | broken]
