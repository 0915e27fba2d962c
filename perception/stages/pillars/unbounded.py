"""Points to pillars to features on a grid without a shape, in shapes that a CUDA graph can hold.

Pillars are rows of a hash table of 64-bit keys; points are put into their order by a sort. Plain torch, which
reads nothing back to the host; the hash table is an op of :mod:`sparse_core.conv.grid`.
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
        points: (B * P, 4) float32, pillar after pillar; those of no pillar last, as zeros.
        rows: (B * P,) int64 pillar of each, ``grid.capacity`` of those of none.
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
    """Pillars of a batch, and its points in their order.

    Cells are those of :func:`perception.model.pillars.make_pillars`, to the bit.

    Args:
        points: (B, P, 4) float32 x, y, z (metres, LiDAR frame), intensity.
        lengths: (B,) int32 points of each frame; what lies behind them is ignored.
        grid: of the pillars.
        capacity: pillars there is room for, all frames together; ``grid.active`` tells how many there are.
        impl: of the hash table.
    """
    batch, room = points.shape[:2]
    device = points.device
    held = torch.arange(room, device=device) < lengths[:, None]
    finite = torch.isfinite(points).all(2)
    x, y, z = points.unbind(2)[:3]
    inside = held & finite & grid.contains(x, y, z)
    far = held & finite & ~grid.reaches(x, y)
    frames = torch.arange(batch, device=device, dtype=torch.int32)[:, None]
    # What lies outside is not converted: it may not fit an integer.
    row, column = grid.cell_of(*(torch.where(inside, values, 0.0) for values in (x, y)))
    cells = torch.stack([torch.where(inside, frames, -1), row, column], dim=2).view(-1, 3)
    pillars = fixed_hash(cells, grid.key_shape, batch, capacity, impl=impl)
    rows = pillars.rows_of(cells)
    # Half the bytes are sorted in half the time.
    rows, order = torch.sort(torch.where(rows < 0, capacity, rows).int(), stable=True)
    ordered = torch.where((rows < capacity)[:, None], points.view(-1, 4)[order], 0.0)
    offsets = torch.searchsorted(rows, torch.arange(capacity + 1, device=device, dtype=torch.int32))
    invalid = (held & ~finite).sum(1).int()
    return HashedPillars(pillars, ordered, rows.long(), offsets, invalid, far.sum(1).int())


def encode_hashed(
    pillars: HashedPillars, weights: EncoderWeights, *, dtype: torch.dtype = torch.float16
) -> Tensor:
    """Pillar features: what :func:`~perception.stages.pillars.fixed_encode` gives of the same pillars.

    Sums run in whole numbers, so the result does not depend on the order of the points, to the bit.

    Args:
        pillars: from :func:`hash_pillars`.
        weights: of an encoder for the same grid.
        dtype: of the features.

    Returns:
        (capacity, C); undefined from ``grid.count`` on.
    """
    grid, capacity = weights.grid, pillars.grid.capacity
    points, rows = pillars.points, pillars.rows
    cells = pillars.grid.coordinates()[:, 1:].flip(1)
    centres = grid.metres_of(grid.positions_of_cells(cells) + 0.5)
    taken = (rows < capacity)[:, None]
    # Points of no pillar are many: were they added up in one row, each would wait for all others.
    rows = torch.where(taken[:, 0], rows, torch.arange(len(rows), device=rows.device) % capacity)
    local = local_points(points, centres[rows])
    ones = torch.ones_like(local[:, :1])
    sums = whole_sums(torch.where(taken, torch.cat([whole(local), ones.long()], dim=1), 0), rows, capacity)
    return encode_points(points, local, rows, sums, weights, dtype, taken)
