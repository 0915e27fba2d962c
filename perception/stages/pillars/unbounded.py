"""Points to pillars to features on an unbounded grid with fixed shapes, for CUDA graphs.

Pillars are rows of a hash table with 64-bit keys, and points are sorted by pillar. This is plain torch
without read-backs, except for the hash table of :mod:`sparse_core.conv.grid`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from perception.geometry import OpenGrid
from perception.stages.pillars.common import encode_points, local_points, whole, whole_sums
from perception.stages.pillars.weights import EncoderWeights
from sparse_core.conv.grid import fixed_hash
from sparse_core.conv.grid.layout import FixedHash
from sparse_core.kernels.op import Impl


class HashedPillars(NamedTuple):
    """Points of a batch of frames, grouped by pillar.

    Attributes:
        grid: active pillars.
        points: (B * P, C) float32 sorted by pillar; points without a pillar are last, as zeros.
        rows: (B * P,) int64 pillar of each point; ``grid.capacity`` for none.
        offsets: (capacity + 1,) int64 first point of each pillar.
        invalid: (B,) int32 points with NaN or infinite values.
        far: (B,) int32 points beyond the reach of the keys.
    """

    grid: FixedHash
    points: Tensor
    rows: Tensor
    offsets: Tensor
    invalid: Tensor
    far: Tensor


def hash_pillars(
    points: Tensor, lengths: Tensor, grid: OpenGrid, capacity: int, *, impl: Impl = "auto"
) -> HashedPillars:
    """Group the points of a batch by pillar.

    Cells equal those of :func:`perception.model.pillars.make_pillars`, bit for bit.

    Args:
        points: (B, P, C) float32 x, y, z (metres, LiDAR frame), intensity, and for several sweeps the age.
        lengths: (B,) int32 points of each frame; further points are ignored.
        capacity: capacity for pillars of the whole batch; ``grid.active`` counts all.
    """
    batch, room = points.shape[:2]
    device = points.device
    held = torch.arange(room, device=device) < lengths[:, None]
    finite = torch.isfinite(points).all(2)
    x, y, z = points.unbind(2)[:3]
    inside = held & finite & grid.contains(x, y, z)
    far = held & finite & ~grid.reaches(x, y)
    frames = torch.arange(batch, device=device, dtype=torch.int32)[:, None]
    # Do not convert coordinates out of range: they may overflow an integer.
    row, column = grid.cell_of(*(torch.where(inside, values, 0.0) for values in (x, y)))
    cells = torch.stack([torch.where(inside, frames, -1), row, column], dim=2).view(-1, 3)
    pillars = fixed_hash(cells, grid.key_shape, batch, capacity, impl=impl)
    rows = pillars.rows_of(cells)
    # Sorting int32 takes half the time of int64.
    rows, order = torch.sort(torch.where(rows < 0, capacity, rows).int(), stable=True)
    ordered = torch.where((rows < capacity)[:, None], points.flatten(0, 1)[order], 0.0)
    offsets = torch.searchsorted(rows, torch.arange(capacity + 1, device=device, dtype=torch.int32))
    invalid = (held & ~finite).sum(1).int()
    return HashedPillars(pillars, ordered, rows.long(), offsets, invalid, far.sum(1).int())


def encode_hashed(
    pillars: HashedPillars, weights: EncoderWeights, *, dtype: torch.dtype = torch.float16
) -> Tensor:
    """Compute the features of :func:`~perception.stages.pillars.fixed_encode` for hashed pillars.

    Sums use whole numbers, so the order of points does not matter.

    Args:
        pillars: from :func:`hash_pillars`.

    Returns:
        (capacity, C); undefined from ``grid.count`` on.
    """
    grid, capacity = weights.grid, pillars.grid.capacity
    points, rows = pillars.points, pillars.rows
    cells = pillars.grid.coordinates()[:, 1:].flip(1)
    centres = grid.metres_of(grid.positions_of_cells(cells) + 0.5)
    taken = (rows < capacity)[:, None]
    # Spread points without a pillar over all rows, because many additions to one row would be serial.
    rows = torch.where(taken[:, 0], rows, torch.arange(len(rows), device=rows.device) % capacity)
    local = local_points(points, centres[rows])
    ones = torch.ones_like(local[:, :1])
    sums = whole_sums(torch.where(taken, torch.cat([whole(local), ones.long()], dim=1), 0), rows, capacity)
    return encode_points(points, local, rows, sums, weights, dtype, taken)
