"""One step of refinement for a fixed number of boxes, its points found by rows of pillars."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.export.cells import Chunks, spread
from perception.export.layers import Rows
from perception.geometry import BirdsEyeGrid
from perception.model.layers import PointUnit
from perception.model.refine import (
    RefineOutput,
    RefineStage,
    map_spots,
    point_features,
    sample_bilinear,
    to_local,
)

#: Points of a box that are looked at together; the last of each box are repeated up to a multiple of it.
_CHUNK = 32


class SortedPoints(NamedTuple):
    """Points by pillar.

    Attributes:
        points: (N, 4) float32.
        ends: (cells + 1,) int64: points of the cells before each, by row, then by column.
        grid: of the pillars.
    """

    points: Tensor
    ends: Tensor
    grid: BirdsEyeGrid


class Refinement(nn.Module):
    """A :class:`~perception.model.refine.RefineStage`.

    Args:
        stage: of the network, folded.
    """

    def __init__(self, stage: RefineStage) -> None:
        super().__init__()
        self.grid, self.classes, self.margin_m = stage.grid, stage.classes, stage.config.margin_m
        self.hidden, self.out = stage.hidden, stage.out
        layers = [layer for layer in stage.point_layers if isinstance(layer, PointUnit)]
        self.point_layers = nn.ModuleList(Rows(layer) for layer in layers)

    def forward(
        self, points: SortedPoints, features: Tensor, boxes: Tensor, labels: Tensor, used: Tensor
    ) -> RefineOutput:
        """Outputs of R boxes.

        Args:
            points: of the frame.
            features: (1, C, H, W) map.
            boxes: (R, 7); labels: (R,) int64; used: (R,) bool: what others give means nothing.
        """
        chunks, counts, cropped, local = self._crop(points, boxes, used)
        half = (boxes[:, 3:6] / 2).index_select(0, chunks.owner)
        half = half[:, None].expand(-1, _CHUNK, -1).reshape(-1, 3)
        known = point_features(cropped[chunks.rows].view(-1, 4), local[chunks.rows].view(-1, 3), half)
        for layer in self.point_layers:
            known = layer(known)
        pooled = chunks.maximum(known, counts)
        spots = self.grid.position_of(map_spots(boxes)) - 0.5
        samples = sample_bilinear(features, spots, torch.zeros_like(labels))
        joined = torch.cat(
            [
                pooled,
                samples.flatten(1),
                F.one_hot(labels, self.classes).float(),
                torch.log1p(counts.float())[:, None] / 5.0,
                torch.log(boxes[:, 3:6]),
            ],
            dim=1,
        )
        hidden = self.hidden[0](joined)
        output = self.out(self.hidden[1](hidden))
        return RefineOutput(output[:, :7], output[:, 7], output[:, 8], hidden)

    def _crop(
        self, points: SortedPoints, boxes: Tensor, used: Tensor
    ) -> tuple[Chunks, Tensor, Tensor, Tensor]:
        """Points in boxes and the margin: chunks, (R,) counts, (P, 4), and (P, 3) in the boxes' frames."""
        grid, (rows, columns) = points.grid, points.grid.shape
        half = boxes[:, 3:6] / 2 + self.margin_m
        cosine, sine = torch.cos(boxes[:, 6:]).abs(), torch.sin(boxes[:, 6:]).abs()
        reach = torch.cat(
            [cosine * half[:, :1] + sine * half[:, 1:2], sine * half[:, :1] + cosine * half[:, 1:2]], 1
        )
        centre = boxes[:, :2] - torch.tensor(grid.origin_m, dtype=torch.float32)
        # One cell more on every side: a point on an edge may have been rounded into the next pillar.
        low = torch.floor((centre - reach) / grid.cell_m).long() - 1
        high = torch.floor((centre + reach) / grid.cell_m).long() + 1
        limit = torch.tensor([columns, rows])
        low, high = torch.clamp(low, min=0), torch.minimum(high, limit - 1)
        spans = torch.where(used & (high[:, 0] >= low[:, 0]), (high[:, 1] - low[:, 1] + 1).clamp(min=0), 0)
        box, row = spread(spans)
        row = low[:, 1].index_select(0, box) + row
        start = points.ends.index_select(0, row * columns + low[:, 0].index_select(0, box))
        end = points.ends.index_select(0, row * columns + high[:, 0].index_select(0, box) + 1)
        run, within = spread(end - start)
        owner = box.index_select(0, run)
        candidates = points.points.index_select(0, start.index_select(0, run) + within)
        local = to_local(candidates[:, :3], boxes.index_select(0, owner))
        inside = (local.abs() <= half.index_select(0, owner)).all(dim=1).nonzero()[:, 0]
        owner = owner.index_select(0, inside)
        counts = torch.zeros(boxes.shape[0], dtype=torch.int64).index_add(0, owner, torch.ones_like(owner))
        chunks = Chunks.of(torch.cumsum(counts, 0) - counts, counts, _CHUNK)
        return chunks, counts, candidates.index_select(0, inside), local.index_select(0, inside)
