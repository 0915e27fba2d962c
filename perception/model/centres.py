"""Boxes at centres (CenterPoint, Yin et al., CVPR 2021) on the map of :mod:`perception.model.canvas`.

Unlike in the shipped :mod:`perception.model.head`, all branches convolve the whole map, groups of classes
have separate branches, and a peak need not be a local maximum.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.config import CentreConfig, DetectorConfig
from perception.errors import ConfigError
from perception.geometry import BirdsEyeGrid
from perception.model.bands import convolve_map
from perception.model.canvas import CanvasNetwork
from perception.model.head import decode_boxes
from perception.model.layers import DenseUnit

#: Width of each branch except heat, in the order of :data:`perception.model.head.BOX_CODE`.
BRANCHES = {"centre": 2, "height": 1, "sizes": 3, "heading": 2}
#: Name and width of the branch of ``head.velocity``: m/s along x and y.
VELOCITY = {"velocity": 2}
#: Reference size: box sizes are logarithms of metres.
_METRE = 1.0


class CentreBoxes(NamedTuple):
    """Boxes at the highest heat of a group.

    Attributes:
        boxes: (K, 7) float32, LiDAR frame.
        scores: (K,) float32, descending.
        labels: (K,) int64 class indices.
        velocities: (K, 2) float32 m/s, LiDAR frame; None without ``head.velocity``.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    velocities: Tensor | None = None


class CentreGroupsHead(nn.Module):
    """Head with separate branches for each group of classes."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        section = _section(config)
        self.config, width = config.head, config.head.channels
        #: Grid of any cell size; a detector for another range replaces it.
        self.grid = config.pillars.grid
        self.cell_m = config.pillars.pillar_size_m * section.map_stride
        groups = section.groups or (config.head.classes,)
        if sorted(name for group in groups for name in group) != sorted(config.head.classes):
            raise ConfigError(
                f"backbone.groups must contain each of head.classes {config.head.classes} once, got {groups}"
            )
        #: Class indices of each group.
        self.labels = [[config.head.classes.index(name) for name in group] for group in groups]
        self.shared = DenseUnit(sum(section.up_channels), width)
        self.groups = nn.ModuleList()
        for group in groups:
            outputs = {"heat": len(group), **BRANCHES, **(VELOCITY if config.head.velocity else {})}
            branches = {
                name: nn.Sequential(
                    *(DenseUnit(width, width) for _ in range(layers - 1)),
                    nn.Conv2d(width, channels, 3, padding=1),
                )
                for (name, channels), layers in zip(outputs.items(), section.layers, strict=True)
            }
            self.groups.append(nn.ModuleDict(branches))

    def forward(self, features: Tensor, most: int) -> list[CentreBoxes]:
        """Decode the ``most`` highest cells of each group of a map (1, C, H, W)."""
        shared = self.shared(features)
        return [
            self._hottest(group, torch.tensor(labels, device=features.device), shared, most)
            for group, labels in zip(self.groups, self.labels, strict=True)
        ]

    def _hottest(self, group: nn.Module, labels: Tensor, shared: Tensor, most: int) -> CentreBoxes:
        assert isinstance(group, nn.ModuleDict)
        heat = _branch(group["heat"], shared)[0].float()
        columns, places = heat.shape[2], heat[0].numel()
        logits, flat = torch.topk(heat.flatten(), min(most, heat.numel()))
        place = flat % places
        codes = torch.cat([_branch(group[name], shared)[0].flatten(1).float() for name in BRANCHES])
        codes = codes[:, place].T
        cells = torch.stack([place % columns, place // columns], dim=1)
        grid = self.grid.with_cells(self.cell_m)
        assert isinstance(grid, BirdsEyeGrid)
        sizes = codes.new_full((1, 3), _METRE)
        boxes = decode_boxes(codes, cells, sizes, grid, limit=math.inf)
        velocities = None
        if self.config.velocity:
            velocities = _branch(group["velocity"], shared)[0].flatten(1).float()[:, place].T
        return CentreBoxes(boxes, torch.sigmoid(logits), labels[flat // places], velocities)


def _branch(layers: nn.Module, features: Tensor) -> Tensor:
    """Run one branch of a group on a map."""
    *units, last = layers.children()
    for unit in units:
        features = unit(features)
    return convolve_map(last, features)


class CentreNetwork(CanvasNetwork):
    """CenterPoint network with pillars."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__(config, CentreGroupsHead)


def _section(config: DetectorConfig) -> CentreConfig:
    if not isinstance(config.backbone, CentreConfig):
        raise ConfigError(f"backbone.kind must be 'centres', got {config.backbone.kind!r}")
    return config.backbone
