"""Boxes at anchors (PointPillars, Lang et al., CVPR 2019) on the map of :mod:`perception.model.canvas`."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.config import AnchorConfig, DetectorConfig
from perception.errors import ConfigError
from perception.geometry import BirdsEyeGrid
from perception.model.bands import convolve_map
from perception.model.canvas import CanvasNetwork

#: Width of a box code: x, y, z, length, width, height, yaw relative to the anchor.
BOX_CODE = 7


class AnchorBoxes(NamedTuple):
    """Boxes at anchors.

    Attributes:
        boxes: (A, 7) float32, LiDAR frame.
        scores: (A, classes) float32.
    """

    boxes: Tensor
    scores: Tensor


class AnchorHead(nn.Module):
    """Head that predicts scores, box codes and directions of the anchors of each cell."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config, self.section = config.head, _section(config)
        #: Grid of any cell size; a detector for another range replaces it.
        self.grid = config.pillars.grid
        self.cell_m = config.pillars.pillar_size_m * self.section.map_stride
        classes = len(config.head.classes)
        missing = [name for name in config.head.classes if name not in config.head.sizes_m]
        if missing or len(self.section.bottoms_m) != classes:
            raise ConfigError(
                "head.sizes_m and backbone.bottoms_m must have one entry per class; missing sizes:"
                f" {', '.join(missing) or 'none'}; bottoms: {len(self.section.bottoms_m)}"
            )
        anchors, width = classes * len(self.section.yaws_rad), sum(self.section.up_channels)
        self.scores = nn.Conv2d(width, anchors * classes, 1)
        self.codes = nn.Conv2d(width, anchors * BOX_CODE, 1)
        self.directions = nn.Conv2d(width, anchors * 2, 1)

    def anchors(self, cells: Tensor) -> Tensor:
        """Return anchor boxes (A, 7) float32 by their numbers (A,) int64: cell, then class, then yaw."""
        section, grid = self.section, self.grid.with_cells(self.cell_m)
        assert isinstance(grid, BirdsEyeGrid)
        device, (rows, columns) = cells.device, grid.shape
        yaws = torch.tensor(section.yaws_rad, device=device, dtype=torch.float32)
        sizes = torch.tensor(
            [self.config.sizes_m[name] for name in self.config.classes], device=device, dtype=torch.float32
        )
        bottoms = torch.tensor(section.bottoms_m, device=device, dtype=torch.float32)
        label = cells // len(yaws) % len(sizes)
        cell = cells // (len(yaws) * len(sizes))
        low, high = grid.range_m[:2], grid.range_m[3:5]
        places = []
        for index, count, start, end in zip(
            (cell % columns, cell // columns), (columns, rows), low, high, strict=True
        ):
            step = (end - start) / (count if section.centred else count - 1)
            shift = step / 2 if section.centred else 0.0
            places.append((index.double() * step + (start + shift)).float())
        size = sizes[label]
        middle = bottoms[label] + size[:, 2] / 2
        return torch.cat([torch.stack([*places, middle], 1), size, yaws[cells % len(yaws)][:, None]], 1)

    def forward(self, features: Tensor, most: int) -> AnchorBoxes:
        """Decode the ``most`` best anchors of a map (1, C, H, W), best first."""
        classes = len(self.config.classes)
        logits = convolve_map(self.scores, features)[0].permute(1, 2, 0).reshape(-1, classes).float()
        best = logits.amax(1)
        chosen = torch.topk(best, min(most, len(best))).indices
        codes = convolve_map(self.codes, features)[0].permute(1, 2, 0).reshape(-1, BOX_CODE).float()[chosen]
        direction = (
            convolve_map(self.directions, features)[0].permute(1, 2, 0).reshape(-1, 2)[chosen].argmax(1)
        )
        boxes = self.decode(codes, self.anchors(chosen), direction)
        return AnchorBoxes(boxes, torch.sigmoid(logits[chosen]))

    def decode(self, codes: Tensor, anchors: Tensor, direction: Tensor) -> Tensor:
        """Decode codes (A, 7) at anchors (A, 7) with directions (A,) to boxes (A, 7) in the LiDAR frame."""
        diagonal = torch.linalg.vector_norm(anchors[:, 3:5], dim=1, keepdim=True)
        centre = torch.cat([codes[:, :2] * diagonal, codes[:, 2:3] * anchors[:, 5:6]], 1) + anchors[:, :3]
        sizes = torch.exp(codes[:, 3:6]) * anchors[:, 3:6]
        offset = self.section.direction_offset_rad
        turned = torch.remainder(codes[:, 6] + anchors[:, 6] - offset, math.pi)
        yaw = turned + offset + math.pi * direction
        if self.section.clockwise:
            yaw = -yaw - math.pi / 2
        return torch.cat([centre, sizes, yaw[:, None]], 1)


class AnchorNetwork(CanvasNetwork):
    """PointPillars network with anchors."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__(config, AnchorHead)


def _section(config: DetectorConfig) -> AnchorConfig:
    if not isinstance(config.backbone, AnchorConfig):
        raise ConfigError(f"backbone.kind must be 'anchors', got {config.backbone.kind!r}")
    return config.backbone
