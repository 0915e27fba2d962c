"""A refinement step in plain torch, which reads sizes back to the host."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.geometry import GroundGrid
from perception.model.refine import (
    map_spots,
    point_features,
    rectangles,
    sample_bilinear,
    segment_max,
    to_local,
)
from perception.stages.pillars.types import FixedPillars
from perception.stages.refine.common import RefinedBoxes, corrected
from perception.stages.refine.weights import PackedRefine
from sparse_core.conv.grid.layout import padded_width


def refine(
    pillars: FixedPillars,
    features: Tensor,
    boxes: Tensor,
    labels: Tensor,
    weights: PackedRefine,
    *,
    map_shape: tuple[int, int],
    pillar_size_m: float,
    indices: Tensor | None,
    turn: bool,
) -> RefinedBoxes:
    """See :func:`~perception.stages.refine.fixed_refine`; sums are float32 for any dtype of weights."""
    if indices is not None:
        taken = indices.clamp(min=0).long()
        boxes = boxes.gather(1, taken[..., None].expand(-1, -1, 7))
        labels = torch.where(indices >= 0, labels.gather(1, taken), -1)
    result = RefinedBoxes(
        torch.zeros_like(boxes),
        labels.clamp(min=-1),
        boxes.new_zeros(labels.shape),
        boxes.new_zeros(labels.shape),
        weights.hidden.new_zeros(*labels.shape, len(weights.hidden)),
    )
    frames, places = (labels >= 0).nonzero(as_tuple=True)
    taken_boxes, taken_labels = boxes[frames, places], labels[frames, places]
    pooled, counts = _pooled_points(pillars, taken_boxes, frames, weights, pillar_size_m)
    joined = pooled @ weights.joined_points.float() + weights.joined_bias
    samples = _map_samples(features, taken_boxes, frames, weights, map_shape)
    joined = joined + torch.einsum("rsc,sch->rh", samples, weights.joined_map.float())
    joined = joined + weights.joined_rest[taken_labels]
    scalars = torch.cat([torch.log1p(counts.float())[:, None] / 5.0, torch.log(taken_boxes[:, 3:6])], dim=1)
    joined = joined + scalars @ weights.joined_rest[weights.classes :]
    joined = torch.relu(joined)
    refined, fit, flip = corrected(joined, taken_boxes, weights, turn=turn)
    result.boxes[frames, places] = refined
    result.fit_logits[frames, places] = fit
    result.flip_logits[frames, places] = flip
    result.features[frames, places] = joined.to(weights.dtype)
    return result


def _pooled_points(
    pillars: FixedPillars, boxes: Tensor, frames: Tensor, weights: PackedRefine, pillar_size_m: float
) -> tuple[Tensor, Tensor]:
    """Return the largest point features (R, P3) in each enlarged box and the number of points (R,)."""
    half = boxes[:, 3:6] / 2
    start, length = _point_runs(
        pillars, boxes, frames, half + weights.margin_m, weights.grid.with_cells(pillar_size_m)
    )
    spans = length.shape[1]
    run = torch.repeat_interleave(length.flatten())
    rows = run // max(spans, 1)
    within = torch.arange(len(run), device=run.device)
    within = within - (torch.cumsum(length.flatten(), 0) - length.flatten())[run]
    points = pillars.points[start.flatten()[run] + within]
    local = to_local(points[:, :3], boxes[rows])
    inside = (local.abs() <= half[rows] + weights.margin_m).all(dim=1)
    points, local, rows = points[inside], local[inside], rows[inside]
    hidden = point_features(points, local, half[rows])
    hidden = torch.relu(hidden @ weights.points_1[: hidden.shape[1]] + weights.points_bias_1)
    hidden = torch.relu(hidden @ weights.points_2.float() + weights.points_bias_2)
    hidden = torch.relu(hidden @ weights.points_3.float() + weights.points_bias_3)
    counts = torch.bincount(rows, minlength=len(boxes))
    return segment_max(hidden, counts), counts


def _point_runs(
    pillars: FixedPillars,
    boxes: Tensor,
    frames: Tensor,
    half: Tensor,
    pillar_grid: GroundGrid,
) -> tuple[Tensor, Tensor]:
    """Return first point and length of the run in each pillar row of a box: (R, S) int64 each."""
    grid = pillars.grid
    height, width = grid.spatial_shape
    low, high, row = rectangles(boxes, half, pillar_grid, (height, width))
    taken = (row <= high[:, 1:]) & (low[:, :1] <= high[:, :1])
    line = torch.where(taken, (frames[:, None] * height + row) * padded_width(width), 0)
    first = _rows_before(grid.words, torch.where(taken, line + low[:, :1], 0), inclusive=False)
    last = _rows_before(grid.words, torch.where(taken, line + high[:, :1], 0), inclusive=True)
    offsets = pillars.offsets.long()
    start, end = offsets[first.clamp(max=grid.capacity)], offsets[last.clamp(max=grid.capacity)]
    return start, torch.where(taken, end - start, 0)


def _rows_before(words: Tensor, cells: Tensor, *, inclusive: bool) -> Tensor:
    """Count the active cells before each cell, or up to it."""
    word, place = cells // 32, cells % 32
    bits = words[word, 0].long() & ((2 if inclusive else 1) << place) - 1
    ones = (bits[..., None] >> torch.arange(32, device=cells.device) & 1).sum(dim=-1)
    return words[word, 1].long() + ones


def _map_samples(
    features: Tensor, boxes: Tensor, frames: Tensor, weights: PackedRefine, map_shape: tuple[int, int]
) -> Tensor:
    """Sample the map at the centre and the middles of the four sides: (R, 5, C padded) float32."""
    by_frame = features.view(-1, *map_shape, features.shape[1]).permute(0, 3, 1, 2)
    samples = sample_bilinear(by_frame, weights.grid.position_of(map_spots(boxes)) - 0.5, frames)
    return torch.nn.functional.pad(samples, (0, weights.joined_map.shape[1] - features.shape[1]))
