"""PointPillars as published (Lang et al., CVPR 2019): one layer a point, a dense backbone, anchors.

The layers are those that OpenPCDet, mmdetection3d and zhulf0804's PointPillars train, so that their weights
run here (``perceive convert-weights``). They are not trained here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.config import BackboneConfig, DetectorConfig
from perception.errors import ConfigError
from perception.geometry import BirdsEyeGrid
from perception.model.layers import DenseUnit, PointUnit
from perception.model.network import Network, NetworkMaps
from perception.model.pillars import Pillars
from perception.model.segments import segment_reduce

#: x, y, z, intensity; offset from the mean (3) and from the middle of the pillar (3).
POINT_FEATURES = 10
#: Coded like an anchor box: x, y, z, length, width, height, yaw.
BOX_CODE = 7


@dataclass(frozen=True)
class AnchorConfig(BackboneConfig):
    """The section ``backbone`` of such a detector; ``neck`` and ``refine`` mean nothing to it.

    Sizes of anchors are ``head.sizes_m``, in the order of ``head.classes``; ``head.top_k`` boxes go to the
    suppression.

    Attributes:
        strides: of the first layer of each stage.
        up_channels, up_strides: width of what each stage hands on, and how much finer it is made.
        bottoms_m: by class, height of the anchors' undersides.
        yaws_rad: of the anchors, for each class and cell.
        centred: anchors stand in the middles of cells; if not, from edge to edge of the range.
        clockwise: yaws of anchors and codes count clockwise from -y, as in mmdetection3d before 1.0.
        direction_offset_rad: from where half turns are told apart.
        points: of a pillar that count, the first ones.
        per_class: boxes are of each class that scores enough, and only those of one suppress each other; if
            not, a box is of its best class, and suppresses all.
    """

    kind: str = "anchors"
    channels: tuple[int, ...] = (64, 128, 256)
    blocks: tuple[int, ...] = (3, 5, 5)
    strides: tuple[int, ...] = (2, 2, 2)
    up_channels: tuple[int, ...] = (128, 128, 128)
    up_strides: tuple[int, ...] = (1, 2, 4)
    bottoms_m: tuple[float, ...] = (-1.78, -0.6, -0.6)
    yaws_rad: tuple[float, ...] = (0.0, 1.57)
    centred: bool = False
    clockwise: bool = False
    direction_offset_rad: float = 0.78539
    points: int = 32
    per_class: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = [len(part) for part in (self.channels, self.strides, self.up_channels, self.up_strides)]
        if len(set(counts)) > 1:
            raise ConfigError(
                "backbone.channels, strides, up_channels and up_strides must be of equal length, got"
                f" {', '.join(map(str, counts))}"
            )
        finer = {
            math.prod(self.strides[: level + 1]) / up for level, up in enumerate(self.up_strides) if up > 0
        }
        if min(*self.strides, *self.up_strides) < 1 or len(finer) > 1:
            raise ConfigError(
                f"backbone.strides {self.strides} and up_strides {self.up_strides} must be positive and lead"
                " to one resolution"
            )

    @property
    def stride(self) -> int:
        """Pillars per cell of the coarsest map."""
        return math.prod(self.strides)

    @property
    def map_stride(self) -> int:
        """Pillars per cell of the map that the head reads."""
        return self.strides[0] // self.up_strides[0]


class AnchorEncoder(nn.Module):
    """Pillar features: one layer shared by all points and the maximum.

    Args:
        config: of the detector.
    """

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.most = _section(config).points
        self.points = PointUnit(POINT_FEATURES, config.pillars.channels)

    def forward(self, slots: Tensor, counted: Tensor, centre: Tensor) -> Tensor:
        """Features of the pillars.

        Args:
            slots: (M, points, 4) float32 points of each pillar; counted: (M, points) bool: which are any.
            centre: (M, 3) middle of each, metres.

        Returns:
            (M, channels) float32, not negative.
        """
        used = counted[:, :, None]
        xyz = torch.where(used, slots[:, :, :3], 0.0)
        mean = xyz.sum(1, keepdim=True) / counted.sum(1)[:, None, None]
        features = torch.cat([slots, slots[:, :, :3] - mean, slots[:, :, :3] - centre[:, None]], dim=2)
        counts = counted.sum(1)
        highest = segment_reduce(self.points(features[counted]), counts, "max")
        # It was trained with zeros in places without a point, which count for the maximum.
        empty: Tensor = self.points(features.new_zeros(1, POINT_FEATURES))
        return torch.maximum(highest, torch.where((counts < self.most)[:, None], empty, 0.0))


class AnchorBackbone(nn.Module):
    """Three stages on the full grid, each raised to one resolution, side by side.

    Args:
        config: of the detector.
    """

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        section = _section(config)
        self.stages, self.ups = nn.ModuleList(), nn.ModuleList()
        width = config.pillars.channels
        for level, channels in enumerate(section.channels):
            layers = [DenseUnit(width, channels, stride=section.strides[level])]
            layers += [DenseUnit(channels, channels) for _ in range(section.blocks[level])]
            self.stages.append(nn.Sequential(*layers))
            up, stride = section.up_channels[level], section.up_strides[level]
            self.ups.append(DenseUnit(channels, up, stride=stride, transposed=True))
            width = channels

    def forward(self, canvas: Tensor) -> Tensor:
        """(B, C, H, W) pillar features to (B, C', H', W')."""
        raised = []
        for stage, up in zip(self.stages, self.ups, strict=True):
            canvas = stage(canvas)
            raised.append(up(canvas))
        return torch.cat(raised, dim=1)


class AnchorBoxes(NamedTuple):
    """Boxes at anchors.

    Attributes:
        boxes: (A, 7) float32, LiDAR frame.
        scores: (A, classes) float32.
    """

    boxes: Tensor
    scores: Tensor


class AnchorHead(nn.Module):
    """Scores, codes and headings of the anchors of each cell.

    Args:
        config: of the detector.
    """

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config, self.section = config.head, _section(config)
        #: Of any cells: a detector that looks elsewhere has another range.
        self.grid = config.pillars.grid
        self.cell_m = config.pillars.pillar_size_m * self.section.map_stride
        classes = len(config.head.classes)
        missing = [name for name in config.head.classes if name not in config.head.sizes_m]
        if missing or len(self.section.bottoms_m) != classes:
            raise ConfigError(
                f"head.sizes_m and backbone.bottoms_m must have an entry for each class; sizes of"
                f" {', '.join(missing) or 'none'} missing, {len(self.section.bottoms_m)} bottoms"
            )
        anchors, width = classes * len(self.section.yaws_rad), sum(self.section.up_channels)
        self.scores = nn.Conv2d(width, anchors * classes, 1)
        self.codes = nn.Conv2d(width, anchors * BOX_CODE, 1)
        self.directions = nn.Conv2d(width, anchors * 2, 1)

    def anchors(self, cells: Tensor) -> Tensor:
        """Anchor boxes (A, 7) float32 by number: cell, then class, then yaw; their own yaws.

        Args:
            cells: (A,) int64 numbers.
        """
        section, grid = self.section, self.grid.with_cells(self.cell_m)
        assert isinstance(grid, BirdsEyeGrid)
        device, (rows, columns) = cells.device, grid.shape
        yaws = torch.tensor(section.yaws_rad, device=device)
        sizes = torch.tensor([self.config.sizes_m[name] for name in self.config.classes], device=device)
        bottoms = torch.tensor(section.bottoms_m, device=device)
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
        """The ``most`` anchors of the highest scores, decoded, best first: (1, C, H, W) map."""
        classes = len(self.config.classes)
        logits = self.scores(features)[0].permute(1, 2, 0).reshape(-1, classes).float()
        best = logits.amax(1)
        chosen = torch.topk(best, min(most, len(best))).indices
        codes = self.codes(features)[0].permute(1, 2, 0).reshape(-1, BOX_CODE).float()[chosen]
        direction = self.directions(features)[0].permute(1, 2, 0).reshape(-1, 2)[chosen].argmax(1)
        boxes = self.decode(codes, self.anchors(chosen), direction)
        return AnchorBoxes(boxes, torch.sigmoid(logits[chosen]))

    def decode(self, codes: Tensor, anchors: Tensor, direction: Tensor) -> Tensor:
        """Codes (A, 7) at anchors (A, 7), with which half turn (A,), to boxes (A, 7) in the LiDAR frame."""
        diagonal = torch.linalg.vector_norm(anchors[:, 3:5], dim=1, keepdim=True)
        centre = torch.cat([codes[:, :2] * diagonal, codes[:, 2:3] * anchors[:, 5:6]], 1) + anchors[:, :3]
        sizes = torch.exp(codes[:, 3:6]) * anchors[:, 3:6]
        offset = self.section.direction_offset_rad
        turned = torch.remainder(codes[:, 6] + anchors[:, 6] - offset, math.pi)
        yaw = turned + offset + math.pi * direction
        if self.section.clockwise:
            yaw = -yaw - math.pi / 2
        return torch.cat([centre, sizes, yaw[:, None]], 1)


class AnchorNetwork(Network):
    """Encoder, backbone and head of one configuration.

    Args:
        config: what to build.
    """

    def __init__(self, config: DetectorConfig) -> None:
        nn.Module.__init__(self)
        if config.refine.enabled or config.neck.blocks or config.pillars.open:
            raise ConfigError(
                "a detector of kind 'anchors' has no refinement and no neck, and needs a range:"
                " refine.enabled: false, neck.blocks: 0, six numbers as pillars.range_m"
            )
        self.config = config
        # Parts of other types than the base's under its names, which weights and ranges are read by.
        parts: dict[str, nn.Module] = {
            "encoder": AnchorEncoder(config),
            "backbone": AnchorBackbone(config),
            "head": AnchorHead(config),
            "refinements": nn.ModuleList(),
        }
        for name, part in parts.items():
            self.add_module(name, part)
        self.embedding = None

    def maps(self, pillars: Pillars) -> NetworkMaps:
        """Nothing: there is no heat map to train.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("a network of kind 'anchors' is converted from another program, not trained here")


def _section(config: DetectorConfig) -> AnchorConfig:
    if not isinstance(config.backbone, AnchorConfig):
        raise ConfigError(f"backbone.kind must be 'anchors', got {config.backbone.kind!r}")
    return config.backbone
