"""A refinement step on an unbounded grid with fixed shapes, for CUDA graphs.

It computes :func:`~perception.stages.refine.fixed_refine` from hashed pillars and a map of listed cells.
Plain torch searches keys and reads the map. The kernels of that op compute the points, or plain torch with a
fixed number of points per box.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.geometry import GroundGrid
from perception.model.refine import map_spots, point_features, to_local
from perception.stages.pillars.unbounded import HashedPillars
from perception.stages.refine.api import REFINE
from perception.stages.refine.common import RefinedBoxes, RefineTiles, RefineWorkspace, corrected
from perception.stages.refine.weights import PackedRefine
from sparse_core.conv.coordinates.common import linear_keys
from sparse_core.conv.grid.layout import FixedHash
from sparse_core.kernels.op import Impl

#: Largest number of points per box in plain torch; more are thinned evenly, as in the dynamic stage.
MOST_POINTS = 8192
#: Largest number of pillar rows per box, from the lowest on: 30 m for pillars of 16 cm.
MOST_ROWS = 192
#: Points per pass through the layers.
_POINTS_AT_ONCE = 1 << 16


def refine_hashed(
    pillars: HashedPillars,
    features: Tensor,
    last: FixedHash,
    boxes: Tensor,
    labels: Tensor,
    weights: PackedRefine,
    *,
    grid: GroundGrid,
    turn: bool,
    workspace: RefineWorkspace,
    tiles: RefineTiles | None = None,
    impl: Impl = "auto",
) -> RefinedBoxes:
    """Run one refinement step.

    Args:
        pillars: points by pillar.
        features: (4 * capacity + 4, C) rows of the map: four per cell of ``last``, then an empty scene.
        last: cells of the map at half its resolution.
        boxes: (B, K, 7) float32; labels: (B, K) int32 class, -1 for no box.
        weights: from :func:`~perception.stages.refine.pack_refine`.
        turn: add half a turn to boxes with a positive flip logit.
        workspace: cleared buffers for B * K boxes.
        tiles: tiles of the kernels; None: default.
        impl: ``"reference"`` reads at most :data:`MOST_POINTS` points per box, ``"triton"`` all.
    """
    shape, there = labels.shape, labels.flatten() >= 0
    frames = torch.arange(shape[0], device=boxes.device)[:, None].expand(shape).flatten()
    # Use sizes of 1 for rows without a box, because the code divides by sizes and takes their logarithm.
    taken = torch.where(there[:, None], boxes.flatten(0, 1), 1.0)
    start, length = _point_runs(pillars, taken, frames, taken[:, 3:6] / 2 + weights.margin_m, grid)
    context = workspace.context
    samples = _samples(features, last, taken, frames, weights).transpose(0, 1)
    torch.bmm(samples, weights.joined_map.float(), out=context)
    context[0] += weights.joined_rest[labels.flatten().clamp(min=0).long()] + weights.joined_bias
    context[0] += torch.log(taken[:, 3:6]) @ weights.joined_rest[weights.classes + 1 :]
    if REFINE.choose(impl, boxes.device) == "triton":
        from perception.stages.refine import triton

        return triton.refine_listed(
            pillars.points,
            start.int(),
            length.int(),
            boxes,
            labels,
            weights,
            turn=turn,
            workspace=workspace,
            tiles=RefineTiles() if tiles is None else tiles,
        )
    pooled, counts = _pooled_points(pillars, taken, start, length, weights)
    joined = context.sum(0) + pooled @ weights.joined_points.float()
    joined = torch.relu(
        joined + torch.log1p(counts.float())[:, None] / 5.0 * weights.joined_rest[weights.classes]
    )
    refined, fit, flip = corrected(joined, taken, weights, turn=turn)
    return RefinedBoxes(
        torch.where(there[:, None], refined, 0.0).view(*shape, 7),
        labels.clamp(min=-1),
        torch.where(there, fit, 0.0).view(shape),
        torch.where(there, flip, 0.0).view(shape),
        joined.to(weights.dtype).view(*shape, joined.shape[1]),
    )


def _pooled_points(
    pillars: HashedPillars, boxes: Tensor, start: Tensor, length: Tensor, weights: PackedRefine
) -> tuple[Tensor, Tensor]:
    """Return the largest point features (R, P3) in each enlarged box and the number of points (R,)."""
    limit = boxes[:, 3:6] / 2 + weights.margin_m
    ends = torch.cumsum(length, 1)
    total = ends[:, -1:]
    step = torch.clamp((total + MOST_POINTS - 1) // MOST_POINTS, min=1)
    pooled, counts = [], []
    together = max(1, _POINTS_AT_ONCE // MOST_POINTS)
    place = torch.arange(MOST_POINTS, device=boxes.device)
    for first in range(0, len(boxes), together):
        part = slice(first, first + together)
        position = place * step[part]
        alive = position < total[part]
        run = torch.searchsorted(ends[part], position, right=True).clamp(max=length.shape[1] - 1)
        within = position - (ends[part] - length[part]).gather(1, run)
        index = torch.where(alive, start[part].gather(1, run) + within, 0)
        points = pillars.points[index.flatten()]
        box = boxes[part, None].expand(-1, MOST_POINTS, -1).flatten(0, 1)
        local = to_local(points[:, :3], box)
        reach = limit[part, None].expand(-1, MOST_POINTS, -1).flatten(0, 1)
        inside = (local.abs() <= reach).all(dim=1) & alive.flatten()
        hidden = point_features(points, local, box[:, 3:6] / 2)
        hidden = torch.relu(hidden @ weights.points_1[: hidden.shape[1]] + weights.points_bias_1)
        hidden = torch.relu(_layer(hidden, weights.points_2) + weights.points_bias_2)
        hidden = torch.relu(_layer(hidden, weights.points_3) + weights.points_bias_3)
        # ReLU outputs are not negative, so zero is right for points outside.
        hidden = torch.where(inside[:, None], hidden, 0.0)
        pooled.append(hidden.view(-1, MOST_POINTS, hidden.shape[1]).amax(1))
        counts.append(inside.view(-1, MOST_POINTS).sum(1))
    return torch.cat(pooled), torch.cat(counts)


def _layer(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiply in the dtype of the weights, on a CPU in float32; return float32."""
    if rows.is_cuda:
        return (rows.to(matrix.dtype) @ matrix).float()
    return rows @ matrix.float()


def _point_runs(
    pillars: HashedPillars, boxes: Tensor, frames: Tensor, half: Tensor, grid: GroundGrid
) -> tuple[Tensor, Tensor]:
    """Return first point and length of the run in each pillar row of a box: (R, rows) int64 each."""
    cosine, sine = torch.cos(boxes[:, 6]).abs(), torch.sin(boxes[:, 6]).abs()
    across = torch.stack([cosine, sine], 1) * half[:, :1] + torch.stack([sine, cosine], 1) * half[:, 1:2]
    centre = boxes[:, :2] - grid.origin(boxes.device)
    # Add a cell on every side, because a point on an edge may be rounded into the next pillar.
    low = torch.floor((centre - across) / grid.cell_m).long() + (grid.first_cell - 1)
    high = torch.floor((centre + across) / grid.cell_m).long() + (grid.first_cell + 1)
    # Rows and columns have the same number of keys.
    low, high = (cells.clamp(0, grid.key_shape[0] - 1) for cells in (low, high))
    row = low[:, 1:] + torch.arange(MOST_ROWS, device=boxes.device)
    known = pillars.grid.rising_keys()

    def before(column: Tensor, right: bool) -> Tensor:
        cells = torch.stack([frames[:, None].expand_as(row), row, column[:, None].expand_as(row)], dim=2)
        keys = linear_keys(cells.view(-1, 3), grid.key_shape)
        return pillars.offsets[torch.searchsorted(known, keys, right=right)].view(row.shape)

    start, end = before(low[:, 0], False), before(high[:, 0], True)
    return start, torch.where(row <= high[:, 1:], end - start, 0)


def _samples(
    features: Tensor, last: FixedHash, boxes: Tensor, frames: Tensor, weights: PackedRefine
) -> Tensor:
    """Sample the map at the centre and the middles of the four sides: (R, 5, C padded) float32."""
    grid = weights.grid
    position = grid.position_of(map_spots(boxes)) - 0.5
    base = torch.floor(position)
    fraction, cell = position - base, base.long() + grid.first_cell
    total = torch.zeros(*position.shape[:2], features.shape[1], device=boxes.device, dtype=torch.float32)
    for dy in (0, 1):
        for dx in (0, 1):
            x, y = cell[..., 0] + dx, cell[..., 1] + dy
            share = (fraction[..., 0] if dx else 1 - fraction[..., 0]) * (
                fraction[..., 1] if dy else 1 - fraction[..., 1]
            )
            coarse = torch.stack([frames[:, None].expand_as(x), y // 2, x // 2], dim=2).view(-1, 3)
            rows = last.rows_of(coarse).view(x.shape)
            rows = 4 * torch.where(rows < 0, last.capacity, rows) + 2 * (y % 2) + x % 2
            total = total + features[rows].float() * share[..., None]
    return F.pad(total, (0, weights.joined_map.shape[1] - features.shape[1]))
