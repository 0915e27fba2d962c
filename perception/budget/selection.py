"""Selection of important pillars by the heights of their points."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perception.config import PillarConfig

#: Height of a pillar's highest point that indicates an object best, in the LiDAR frame: a metre above the
#: road. In the training data of the shipped weights the road is 1.7 m below the sensor.
TYPICAL_TOP_M = -0.4
#: Height step of the ranking, which avoids sorting.
_STEP_M = 0.02
_STEPS = 256
#: Coordinate of removed points on a GPU: finite, and out of every range.
_AWAY_M = 1e30


@torch.inference_mode()
def important_points(points: Tensor, config: PillarConfig, share: float) -> Tensor:
    """Return the points of the most important pillars.

    A pillar is more important the closer its highest point is to a metre above the road. Empty road is
    removed first, then tree crowns and walls. All points of a pillar stay or go together, and their order
    does not matter.

    With a bounded range, no size is read back from a GPU.

    Args:
        points: (N, 4) float32 x, y, z (metres, LiDAR frame), intensity.
        config: grid of pillars.
        share: share of pillars to keep, in (0, 1]. Pillars of equal rank (within 2 cm) stay together, so
            slightly more may be kept.

    Returns:
        On a CPU the kept points in their order, including points that are not finite, which the detector
        reports. On a GPU all points, with removed ones moved out of range.

    Raises:
        ValueError: ``share`` out of range.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    if share == 1 or len(points) == 0:
        return points
    grid = config.grid
    rows, columns = grid.key_shape
    inside = torch.isfinite(points[:, 3]) & grid.contains(*points.T[:3])
    row, column = grid.cell_of(points[:, 0], points[:, 1])
    outside = rows * columns
    if config.open:
        # An unbounded grid has too many cells for an array, so number the occupied ones.
        cells = torch.where(inside, row.long() * columns + column, outside)
        cells = torch.unique(torch.cat([cells, cells.new_tensor([outside])]), return_inverse=True)[1]
        cells, outside = cells[:-1], int(cells[-1])
    else:
        cells = torch.where(inside, row * columns + column, outside).long()
    top = points.new_full((outside + 1,), -math.inf)
    top.scatter_reduce_(0, cells, points[:, 2], "amax")
    steps = ((top[cells] - TYPICAL_TOP_M).abs() / _STEP_M).clamp(max=_STEPS - 1)
    steps = torch.where(inside, steps, _STEPS - 1).long()
    # Count each pillar once, by an arbitrary one of its points.
    number = torch.arange(len(points), device=points.device)
    counted = torch.empty_like(top, dtype=torch.int64).scatter_(0, cells, number)[cells] == number
    pillars = torch.zeros(_STEPS, dtype=torch.int64, device=points.device)
    pillars.index_add_(0, steps, (counted & inside).long())
    below = torch.cumsum(pillars, 0)
    # Keep all pillars of the last step.
    limit = (below < below[-1] * share).sum()
    keep = inside & (steps <= limit)
    broken = ~torch.isfinite(points).all(dim=1)
    if points.is_cuda:
        return torch.where((keep | broken)[:, None], points, _AWAY_M)
    return points[keep | broken]
