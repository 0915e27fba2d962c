"""Second stage: refine each proposal by its points, and predict its IoU.

After LiDAR R-CNN (Li et al., CVPR 2021): a small PointNet reads the points in the proposal's frame, with
their distances to the proposal's faces. Features of the bird's-eye map at the centre and the sides join them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.config import RefineConfig
from perception.geometry import GroundGrid
from perception.model import compiled
from perception.model.layers import PointUnit, linear_rows
from perception.model.listed_map import ByteMap, FeatureMap, ListedMap
from perception.model.pillars import Pillars
from perception.model.segments import repeat_rows, segment_reduce, size_of
from sparse_core.common.workers import is_shareable, share_tasks

#: Position in the proposal's frame (3), distances to its six faces (6), intensity, height and range (3).
#: Several sweeps add the age.
POINT_FEATURES = 12
#: Width of the hidden layers.
HIDDEN = 256
#: dx, dy, dz (over length, width, height of the proposal), log size ratios (3), dyaw, fit, heading flip.
OUTPUTS = 9


#: Numbers of a velocity: along x and y. Width of the hidden layer that estimates it.
AXES, _VELOCITY_WIDTH = 2, 64


class RefineOutput(NamedTuple):
    """Raw output for each proposal.

    Attributes:
        residuals: (R, 7) float32 in the proposal's frame, see ``OUTPUTS``.
        fit_logits: (R,) float32 logits of the predicted overlap in [0, 1].
        flip_logits: (R,) float32, positive if the heading is opposite.
        features: (R, 256) output of the first hidden layer, not negative.
    """

    residuals: Tensor
    fit_logits: Tensor
    flip_logits: Tensor
    features: Tensor


class CroppedPoints(NamedTuple):
    """Points around proposals, sorted by proposal.

    Attributes:
        points: (P, C) float32 LiDAR frame, intensity, and for several sweeps the age.
        local: (P, 3) float32 position in the proposal's frame, metres.
        rows: (P,) int64 proposal of each point, ascending.
        counts: (R,) int64 points of each proposal.
    """

    points: Tensor
    local: Tensor
    rows: Tensor
    counts: Tensor


#: Point layers and maximum per proposal: features (P, F) of R proposals to (R, C) float32.
PointPool = Callable[[Tensor, CroppedPoints], Tensor]

#: Largest number of points per proposal; more are thinned evenly, to bound the memory.
MAX_CANDIDATES = 16_384
#: Points per part on a CPU, so that their features stay in a core's cache.
POINTS_AT_ONCE = 512
#: Chunk size of the maximum in exported programs.
_CHUNK = 32


def crop_points(pillars: Pillars, boxes: Tensor, box_frames: Tensor, *, margin_m: float) -> CroppedPoints:
    """Find the points in boxes enlarged by a margin. A point may belong to several boxes.

    Points are sorted by pillar, so the candidates of a box are one run per pillar row of its bounding
    rectangle.

    Args:
        pillars: points by pillar.
        boxes: (R, 7); box_frames: (R,) int64.
        margin_m: margin on every side.
    """
    half = boxes[:, 3:6] / 2 + margin_m
    start, length = _point_runs(pillars, boxes, box_frames, half)
    plain = boxes.dtype == torch.float32 and not boxes.requires_grad
    if boxes.device.type == "cpu" and plain and not torch.compiler.is_compiling():
        cropped = compiled.crop_points(pillars.points, boxes, half, start, length, MAX_CANDIDATES)
        if cropped is not None:
            return CroppedPoints(*cropped)
    rows, columns = _candidates(start, length)
    points = pillars.points.index_select(0, columns)
    local = to_local(points[:, :3], boxes.index_select(0, rows))
    inside = local.abs() <= half.index_select(0, rows)
    kept = (inside[:, 0] & inside[:, 1] & inside[:, 2]).nonzero()[:, 0]
    rows, points, local = (part.index_select(0, kept) for part in (rows, points, local))
    counts = rows.new_zeros(len(boxes)).index_add(0, rows, torch.ones_like(rows))
    return CroppedPoints(points, local, rows, counts)


def _candidates(runs_start: Tensor, runs_length: Tensor) -> tuple[Tensor, Tensor]:
    """Return box and point indices of all points in the runs (R, S) of boxes, by box, then by point."""
    if torch.compiler.is_exporting():
        # Exported programs have no searchsorted, which thinning needs.
        run, within = repeat_rows(runs_length.flatten())
        box = torch.arange(runs_length.shape[0])[:, None].expand(runs_length.shape).flatten()
        return box.index_select(0, run), runs_start.flatten().index_select(0, run) + within
    per_box = runs_length.sum(dim=1)
    step = torch.clamp((per_box + MAX_CANDIDATES - 1) // MAX_CANDIDATES, min=1)
    taken = (per_box + step - 1) // step
    rows = torch.repeat_interleave(taken)
    first_taken, first_of_box = torch.cumsum(taken, 0) - taken, torch.cumsum(per_box, 0) - per_box
    position = torch.arange(len(rows), device=rows.device) - first_taken[rows]
    position = first_of_box[rows] + position * step[rows]
    lengths = runs_length.flatten()
    run_end = torch.cumsum(lengths, 0)
    run = torch.searchsorted(run_end, position, right=True)
    return rows, runs_start.flatten()[run] + position - (run_end - lengths)[run]


def _point_runs(pillars: Pillars, boxes: Tensor, box_frames: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Return first point and length of the run in each pillar row of a box: (R, S) int64 each."""
    low, high, row = rectangles(boxes, half, pillars.grid, pillars.table.spatial_shape)
    start, end = pillars.runs_of(box_frames[:, None].expand_as(row), row, low[:, 0], high[:, 0])
    return start, torch.where((row <= high[:, 1:]) & (end > start), end - start, 0)


def rectangles(
    boxes: Tensor, half: Tensor, grid: GroundGrid, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the pillars in the bounding rectangles of boxes.

    Args:
        boxes: (R, 7); half: (R, 3) half sizes including a margin.
        grid: grid of the pillars; shape: its rows and columns.

    Returns:
        First and last column and row, (R, 2) int64 each, and the rows from the first one on, (R, S).
    """
    cosine, sine = torch.cos(boxes[:, 6:]).abs(), torch.sin(boxes[:, 6:]).abs()
    reach = torch.cat(
        [cosine * half[:, :1] + sine * half[:, 1:2], sine * half[:, :1] + cosine * half[:, 1:2]], 1
    )
    centre = boxes[:, :2] - grid.origin(boxes.device)
    limit = torch.tensor(shape, device=boxes.device).flip(0) - 1
    # Add a cell on every side, because a point on an edge may be rounded into the next pillar.
    first = grid.first_cell
    low = torch.clamp(torch.floor((centre - reach) / grid.cell_m).long() + (first - 1), min=0)
    high = torch.minimum(torch.floor((centre + reach) / grid.cell_m).long() + (first + 1), limit)
    span = size_of((high[:, 1] - low[:, 1] + 1).max().clamp(min=0)) if len(boxes) else 0
    return low, high, low[:, 1:] + torch.arange(span, device=boxes.device)


def point_features(points: Tensor, local: Tensor, half: Tensor) -> Tensor:
    """Return features (P, F) of points (P, C) at ``local`` (P, 3) in proposals of half sizes (P, 3)."""
    distance = torch.linalg.vector_norm(points[:, :2], dim=1, keepdim=True)
    parts = [local, half - local, half + local, points[:, 3:4], points[:, 2:3], distance / 40.0]
    return torch.cat(parts if points.shape[1] == 4 else [*parts, points[:, 4:]], dim=1)


def map_spots(boxes: Tensor) -> Tensor:
    """Return the sampled positions: centre and middles of the four sides, (R, 5, 2) x, y in metres."""
    cosine, sine = torch.cos(boxes[:, 6]), torch.sin(boxes[:, 6])
    ahead = torch.stack([cosine, sine], dim=1) * boxes[:, 3:4] / 2
    left = torch.stack([-sine, cosine], dim=1) * boxes[:, 4:5] / 2
    centre = boxes[:, :2]
    return torch.stack([centre, centre + ahead, centre - ahead, centre + left, centre - left], dim=1)


def to_local(positions: Tensor, boxes: Tensor) -> Tensor:
    """Transform positions (P, 3) to the frames of boxes (P, 7): origin at the centre, x along the heading."""
    delta = positions - boxes[:, :3]
    cosine, sine = torch.cos(boxes[:, 6]), torch.sin(boxes[:, 6])
    return torch.stack(
        [cosine * delta[:, 0] + sine * delta[:, 1], cosine * delta[:, 1] - sine * delta[:, 0], delta[:, 2]],
        dim=1,
    )


def apply_residuals(boxes: Tensor, residuals: Tensor) -> Tensor:
    """Correct boxes (R, 7) by residuals (R, 7)."""
    shift = residuals[:, :3] * boxes[:, 3:6]
    cosine, sine = torch.cos(boxes[:, 6]), torch.sin(boxes[:, 6])
    x = boxes[:, 0] + cosine * shift[:, 0] - sine * shift[:, 1]
    y = boxes[:, 1] + sine * shift[:, 0] + cosine * shift[:, 1]
    sizes = boxes[:, 3:6] * torch.exp(residuals[:, 3:6].clamp(-1.0, 1.0))
    yaw = boxes[:, 6] + residuals[:, 6]
    return torch.cat([torch.stack([x, y, boxes[:, 2] + shift[:, 2]], dim=1), sizes, yaw[:, None]], dim=1)


def turned(boxes: Tensor, flip_logits: Tensor) -> Tensor:
    """Turn boxes (R, 7) with a positive flip logit by half a turn."""
    turn = math.pi * (flip_logits > 0).float()
    return torch.cat([boxes[:, :6], boxes[:, 6:] + turn[:, None]], dim=1)


def residuals_between(boxes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return residuals (R, 7) from boxes to targets up to heading, and opposite headings (R,) bool."""
    shift = to_local(targets[:, :3], boxes) / boxes[:, 3:6]
    sizes = torch.log(targets[:, 3:6] / boxes[:, 3:6])
    turn = torch.remainder(targets[:, 6] - boxes[:, 6] + math.pi, 2 * math.pi) - math.pi
    flipped = turn.abs() > math.pi / 2
    turn = torch.where(flipped, turn - math.pi * torch.sign(turn), turn)
    return torch.cat([shift, sizes, turn[:, None]], dim=1), flipped


class RefineStage(nn.Module):
    """One refinement step.

    Args:
        config: widths and margin.
        columns: columns of a point, :attr:`PillarConfig.columns <perception.config.PillarConfig.columns>`.
    """

    def __init__(
        self,
        config: RefineConfig,
        *,
        classes: int,
        map_channels: int,
        grid: GroundGrid,
        columns: int = 4,
    ) -> None:
        super().__init__()
        self.config = config
        self.grid = grid
        self.classes = classes
        widths = [POINT_FEATURES + columns - 4, *config.channels]
        self.point_layers = nn.ModuleList(PointUnit(inputs, outputs) for inputs, outputs in pairwise(widths))
        before = widths[-1] + 5 * map_channels
        pooled = before + classes + 4
        #: Inputs of the first hidden layer that encode the class.
        self.class_columns = slice(before, before + classes)
        self.hidden = nn.Sequential(PointUnit(pooled, HIDDEN), PointUnit(HIDDEN, HIDDEN))
        self.out = nn.Linear(HIDDEN, OUTPUTS)
        nn.init.zeros_(self.out.bias)
        nn.init.normal_(self.out.weight, std=1e-3)

    def forward(
        self,
        pillars: Pillars,
        features: FeatureMap,
        boxes: Tensor,
        box_frames: Tensor,
        labels: Tensor,
        pool_points: PointPool | None = None,
    ) -> RefineOutput:
        """Compute raw outputs for R proposals.

        Args:
            pillars: points by pillar.
            features: (B, C, H, W) bird's-eye map, or another map.
            boxes: (R, 7) float32; box_frames: (R,) int64; labels: (R,) int64.
            pool_points: replacement for the point layers.
        """
        crop = crop_points(pillars, boxes, box_frames, margin_m=self.config.margin_m)
        half = (boxes[:, 3:6] / 2).index_select(0, crop.rows)
        pooled = (pool_points or self._pooled)(point_features(crop.points, crop.local, half), crop)
        spots = self.grid.position_of(map_spots(boxes)) - 0.5
        if isinstance(features, Tensor):
            samples = sample_bilinear(features, spots, box_frames)
        else:
            samples = _sample_cells(features, spots, box_frames, self.grid)
        context = [
            pooled,
            samples.flatten(1),
            F.one_hot(labels, self.classes).to(pooled.dtype),
            torch.log1p(crop.counts.float())[:, None] / 5.0,
            torch.log(boxes[:, 3:6]),
        ]
        joined = torch.cat([part.float() for part in context], dim=1)
        known = self.hidden[0](joined)
        output = linear_rows(self.out, self.hidden[1](known)).float()
        return RefineOutput(output[:, :7], output[:, 7], output[:, 8], known)

    def refined(
        self,
        pillars: Pillars,
        features: FeatureMap,
        boxes: Tensor,
        box_frames: Tensor,
        labels: Tensor,
        pool_points: PointPool | None = None,
    ) -> tuple[Tensor, RefineOutput]:
        """Return corrected boxes (R, 7) and raw outputs; arguments as in :meth:`forward`."""
        output: RefineOutput = self(pillars, features, boxes, box_frames, labels, pool_points)
        return apply_residuals(boxes, output.residuals), output

    def _pooled(self, features: Tensor, crop: CroppedPoints) -> Tensor:
        """Run the point layers and take the maximum per proposal: (R, C) float32."""
        if not is_shareable(features):
            for layer in self.point_layers:
                features = layer(features)
            # ReLU outputs are not negative, so zero is right for a proposal without points.
            return segment_max(features, crop.counts)
        return pool_points(features, crop, nn.Sequential(*self.point_layers), self.config.channels[-1])


def pool_points(
    features: Tensor, crop: CroppedPoints, layers: Callable[[Tensor], Tensor], channels: int
) -> Tensor:
    """Run point layers and take the maximum per proposal, part by part, without gradients.

    Args:
        features: (P, F) features of the points of R proposals.
        layers: maps (N, F) to (N, C), not negative.

    Returns:
        (R, C) float32; zero for a proposal without points.
    """
    pooled = torch.zeros((len(crop.counts), channels), dtype=torch.float32, device=features.device)
    rows = crop.rows.split(POINTS_AT_ONCE)
    parts = features.split(POINTS_AT_ONCE)
    maxima: dict[int, Tensor] = {}

    def compute(number: int) -> None:
        own, made = rows[number], layers(parts[number]).float()
        # The proposals of a part are contiguous.
        within = (own - own[:1])[:, None].expand_as(made)
        found = made.new_zeros((int(own[-1] - own[0]) + 1, channels))
        maxima[number] = found.scatter_reduce_(0, within, made, "amax")

    share_tasks(compute, len(parts) if len(features) else 0)
    for number, found in maxima.items():
        reached = pooled[int(rows[number][0]) :][: len(found)]
        torch.maximum(reached, found, out=reached)
    return pooled


def segment_max(values: Tensor, counts: Tensor) -> Tensor:
    """Return the maximum (R, C) float32 of runs of non-negative rows (P, C); zero for empty runs."""
    if torch.compiler.is_exporting():
        return segment_reduce(values, counts, "max", chunk=_CHUNK)
    if len(values) == 0:
        return values.new_zeros((len(counts), values.shape[1])).float()
    filled = counts > 0
    pooled = values.new_zeros((len(counts), values.shape[1])).float()
    pooled[filled] = segment_reduce(values, counts[filled], "max")
    return pooled


def sample_bilinear(features: Tensor, cells: Tensor, frames: Tensor) -> Tensor:
    """Sample maps bilinearly: (R, S, C) float32, zero outside.

    Args:
        features: (B, C, H, W).
        cells: (R, S, 2) float x, y in cells; 0 is the centre of the first cell.
        frames: (R,) int64.
    """
    rows, columns = features.shape[2:]
    by_cell = features.permute(0, 2, 3, 1)
    total: Tensor | float = 0.0
    for x, y, weight in _corners(cells):
        weight = weight * ((x >= 0) & (x < columns) & (y >= 0) & (y < rows))
        value = by_cell[frames[:, None], y.clamp(0, rows - 1), x.clamp(0, columns - 1)]
        total = total + value.float() * weight[..., None]
    assert isinstance(total, Tensor)
    return total


def _sample_cells(features: ListedMap | ByteMap, cells: Tensor, frames: Tensor, grid: GroundGrid) -> Tensor:
    """:func:`sample_bilinear` for a map that returns the values of cells."""
    total: Tensor | float = 0.0
    for x, y, weight in _corners(cells):
        value = features.at(frames[:, None], y + grid.first_cell, x + grid.first_cell)
        total = total + value * weight[..., None]
    assert isinstance(total, Tensor)
    return total


def _corners(cells: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return column, row and weight (R, S) of the four cells around each position (R, S, 2) x, y."""
    base = torch.floor(cells)
    fraction = cells - base
    base = base.long()
    corners = []
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (fraction[..., 0] if dx else 1 - fraction[..., 0]) * (
                fraction[..., 1] if dy else 1 - fraction[..., 1]
            )
            corners.append((base[..., 0] + dx, base[..., 1] + dy, weight))
    return corners


class VelocityHead(nn.Module):
    """Two layers from the features of the last refinement step to metres per second.

    The refinement reads ages of points around its box in the frame of that box. The head therefore gives the
    velocity along and across the box that the step read, and turns it to the axes of the LiDAR frame.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(HIDDEN, _VELOCITY_WIDTH, dtype=torch.float32)
        self.out = nn.Linear(_VELOCITY_WIDTH, AXES, dtype=torch.float32)
        nn.init.zeros_(self.out.bias)

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        """Compute velocities (..., 2) float32, m/s along x and y of the LiDAR frame.

        Args:
            features: (..., 256) in the dtype of the weights, see
                :class:`RefineOutput`.
            boxes: (..., 7) boxes that the step read.
        """
        rows = F.relu(linear_rows(self.hidden, features.reshape(-1, HIDDEN)))
        ahead, left = linear_rows(self.out, rows).float().view(*features.shape[:-1], AXES).unbind(-1)
        cosine, sine = torch.cos(boxes[..., 6]), torch.sin(boxes[..., 6])
        return torch.stack([cosine * ahead - sine * left, sine * ahead + cosine * left], dim=-1)
