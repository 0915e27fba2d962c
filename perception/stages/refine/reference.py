"""A refinement step in plain torch: the same contract, with sizes read back to the host."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.model.refine import OUTPUTS, apply_residuals, sample_bilinear, segment_max, to_local
from perception.stages.pillars.types import FixedPillars
from perception.stages.refine.common import RefinedBoxes
from perception.stages.refine.weights import PackedRefine
from sparse_core.conv.grid.layout import padded_width

__all__ = ["refine"]


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
    """:func:`~perception.stages.refine.fixed_refine`; sums are float32 whatever the dtype of the weights."""
    if indices is not None:
        taken = indices.clamp(min=0).long()
        boxes = boxes.gather(1, taken[..., None].expand(-1, -1, 7))
        labels = torch.where(indices >= 0, labels.gather(1, taken), -1)
    result = RefinedBoxes(
        torch.zeros_like(boxes),
        labels.clamp(min=-1),
        boxes.new_zeros(labels.shape),
        boxes.new_zeros(labels.shape),
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
    hidden = torch.relu(torch.relu(joined) @ weights.hidden.float() + weights.hidden_bias)
    output = (hidden @ weights.out + weights.out_bias)[:, :OUTPUTS]
    refined = apply_residuals(taken_boxes, output[:, :7])
    if turn:
        refined[:, 6] += torch.where(output[:, 8] > 0, torch.pi, 0.0)
    result.boxes[frames, places] = refined
    result.fit_logits[frames, places] = output[:, 7]
    result.flip_logits[frames, places] = output[:, 8]
    return result


def _pooled_points(
    pillars: FixedPillars, boxes: Tensor, frames: Tensor, weights: PackedRefine, pillar_size_m: float
) -> tuple[Tensor, Tensor]:
    """Largest features of the points in each enlarged box (R, P3) and how many there are (R,)."""
    half = boxes[:, 3:6] / 2
    start, length = _point_runs(pillars, boxes, frames, half + weights.margin_m, weights, pillar_size_m)
    spans = length.shape[1]
    run = torch.repeat_interleave(length.flatten())
    rows = run // max(spans, 1)
    within = torch.arange(len(run), device=run.device)
    within = within - (torch.cumsum(length.flatten(), 0) - length.flatten())[run]
    points = pillars.points[start.flatten()[run] + within]
    local = to_local(points[:, :3], boxes[rows])
    inside = (local.abs() <= half[rows] + weights.margin_m).all(dim=1)
    points, local, rows = points[inside], local[inside], rows[inside]
    distance = torch.linalg.vector_norm(points[:, :2], dim=1, keepdim=True)
    hidden = torch.cat(
        [
            local,
            half[rows] - local,
            half[rows] + local,
            points[:, 3:4],
            points[:, 2:3],
            distance / 40.0,
        ],
        dim=1,
    )
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
    weights: PackedRefine,
    pillar_size_m: float,
) -> tuple[Tensor, Tensor]:
    """First point and length of the run in each pillar row under bounding rectangles: (R, S) int64 each."""
    grid = pillars.grid
    height, width = grid.spatial_shape
    cosine, sine = torch.cos(boxes[:, 6:]).abs(), torch.sin(boxes[:, 6:]).abs()
    reach = torch.cat(
        [cosine * half[:, :1] + sine * half[:, 1:2], sine * half[:, :1] + cosine * half[:, 1:2]], 1
    )
    centre = boxes[:, :2] - torch.tensor(weights.origin_m, device=boxes.device)
    limit = torch.tensor([width - 1, height - 1], device=boxes.device)
    # One cell more on every side: a point on an edge may have been rounded into the next pillar.
    low = torch.clamp(torch.floor((centre - reach) / pillar_size_m).long() - 1, min=0)
    high = torch.minimum(torch.floor((centre + reach) / pillar_size_m).long() + 1, limit)
    span = int((high[:, 1] - low[:, 1]).max().clamp(min=-1)) + 1 if len(boxes) else 0
    row = low[:, 1:] + torch.arange(span, device=boxes.device)
    taken = (row <= high[:, 1:]) & (low[:, :1] <= high[:, :1])
    line = torch.where(taken, (frames[:, None] * height + row) * padded_width(width), 0)
    first = _rows_before(grid.words, torch.where(taken, line + low[:, :1], 0), inclusive=False)
    last = _rows_before(grid.words, torch.where(taken, line + high[:, :1], 0), inclusive=True)
    offsets = pillars.offsets.long()
    start, end = offsets[first.clamp(max=grid.capacity)], offsets[last.clamp(max=grid.capacity)]
    return start, torch.where(taken, end - start, 0)


def _rows_before(words: Tensor, cells: Tensor, *, inclusive: bool) -> Tensor:
    """Active cells before each cell, or up to it."""
    word, place = cells // 32, cells % 32
    bits = words[word, 0].long() & ((2 if inclusive else 1) << place) - 1
    ones = (bits[..., None] >> torch.arange(32, device=cells.device) & 1).sum(dim=-1)
    return words[word, 1].long() + ones


def _map_samples(
    features: Tensor, boxes: Tensor, frames: Tensor, weights: PackedRefine, map_shape: tuple[int, int]
) -> Tensor:
    """Bilinear samples at the centre and the middles of the four sides: (R, 5, C padded) float32."""
    cosine, sine = torch.cos(boxes[:, 6]), torch.sin(boxes[:, 6])
    ahead = torch.stack([cosine, sine], dim=1) * boxes[:, 3:4] / 2
    left = torch.stack([-sine, cosine], dim=1) * boxes[:, 4:5] / 2
    centre = boxes[:, :2]
    spots = torch.stack([centre, centre + ahead, centre - ahead, centre + left, centre - left], dim=1)
    cells = (spots - torch.tensor(weights.origin_m, device=boxes.device)) / weights.cell_m - 0.5
    by_frame = features.view(-1, *map_shape, features.shape[1]).permute(0, 3, 1, 2)
    samples = sample_bilinear(by_frame, cells, frames)
    return torch.nn.functional.pad(samples, (0, weights.joined_map.shape[1] - features.shape[1]))
