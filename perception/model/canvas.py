"""PointPillars as published (Lang et al., CVPR 2019) without its head: point layers and a dense backbone.

Layers match those of OpenPCDet, mmdetection3d and zhulf0804's PointPillars, whose weights
``perceive convert-weights`` imports. They are not trained here. The heads are in
:mod:`perception.model.anchors` and :mod:`perception.model.centres`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from perception.config import CanvasConfig, DetectorConfig
from perception.errors import ConfigError
from perception.model.layers import DenseUnit, PointUnit
from perception.model.network import Network, NetworkMaps
from perception.model.pillars import Pillars
from perception.model.segments import segment_reduce

#: x, y, z, intensity; offset from the mean (3) and from the pillar centre (3). Several sweeps add the age
#: after the intensity.
POINT_FEATURES = 10


class CanvasEncoder(nn.Module):
    """Pillar features: layers shared by all points, each with the maximum over the pillar."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        section = canvas_section(config)
        #: Widths of the point layers; the maximum of the pillar doubles all but the last.
        widths = [width // 2 for width in section.hidden_channels] + [config.pillars.channels]
        self.points = PointUnit(POINT_FEATURES + config.pillars.columns - 4, widths[0])
        self.further = nn.ModuleList(
            PointUnit(before, width)
            for before, width in zip(section.hidden_channels, widths[1:], strict=True)
        )

    def forward(self, slots: Tensor, counted: Tensor, centre: Tensor) -> Tensor:
        """Compute pillar features (M, channels) float32, not negative.

        Args:
            slots: (M, points, C) float32 points of each pillar.
            counted: (M, points) bool, True for slots with a point, which come first.
            centre: (M, 3) pillar centres, metres.
        """
        used, held = counted[:, :, None], counted.sum(1)
        xyz = torch.where(used, slots[:, :, :3], 0.0)
        mean = xyz.sum(1, keepdim=True) / held[:, None, None]
        features = torch.cat([slots, slots[:, :, :3] - mean, slots[:, :, :3] - centre[:, None]], dim=2)
        # Training included empty slots as zeros in the maximum, so keep one empty slot per pillar.
        counts = (held + 1).clamp(max=slots.shape[1])
        kept = torch.arange(slots.shape[1], device=slots.device) < counts[:, None]
        rows = self.points(torch.where(used, features, 0.0)[kept])
        highest = segment_reduce(rows, counts, "max")
        for layer in self.further:
            around = torch.repeat_interleave(highest, counts, dim=0)
            rows = layer(torch.cat([rows, around], dim=1))
            highest = segment_reduce(rows, counts, "max")
        return highest


class CanvasBackbone(nn.Module):
    """Stages on the full grid, upsampled to one resolution and concatenated."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        section = canvas_section(config)
        self.stages, self.ups = nn.ModuleList(), nn.ModuleList()
        width = config.pillars.channels
        for level, channels in enumerate(section.channels):
            layers = [DenseUnit(width, channels, stride=section.strides[level])]
            layers += [DenseUnit(channels, channels) for _ in range(section.blocks[level])]
            self.stages.append(nn.Sequential(*layers))
            up, stride = section.up_channels[level], section.up_strides[level]
            if stride >= 1:
                self.ups.append(DenseUnit(channels, up, stride=round(stride), transposed=True))
            else:
                coarser = round(1 / stride)
                self.ups.append(DenseUnit(channels, up, stride=coarser, kernel_size=coarser, padding=0))
            width = channels

    def forward(self, canvas: Tensor) -> Tensor:
        """Compute the map (B, C', H', W') from pillar features (B, C, H, W)."""
        raised = []
        for stage, up in zip(self.stages, self.ups, strict=True):
            canvas = stage(canvas)
            raised.append(up(canvas))
        return torch.cat(raised, dim=1)


class CanvasNetwork(Network):
    """Network with a dense canvas of pillars.

    Args:
        head: makes the head.
    """

    def __init__(self, config: DetectorConfig, head: Callable[[DetectorConfig], nn.Module]) -> None:
        nn.Module.__init__(self)
        if config.refine.enabled or config.neck.blocks or config.pillars.open:
            raise ConfigError(
                f"a detector of kind {config.backbone.kind!r} has no refinement or neck and needs a range."
                " Set refine.enabled: false, neck.blocks: 0 and pillars.range_m to six numbers."
            )
        self.config = config
        # Use the names of the base class, because weights and ranges refer to them.
        parts: dict[str, nn.Module] = {
            "encoder": CanvasEncoder(config),
            "backbone": CanvasBackbone(config),
            "head": head(config),
            "refinements": nn.ModuleList(),
        }
        for name, part in parts.items():
            self.add_module(name, part)
        self.embedding = None
        # Ignore torch's default dtype.
        self.float()

    def maps(self, pillars: Pillars) -> NetworkMaps:
        """Raise ``ConfigError``: these networks cannot be trained."""
        kind = self.config.backbone.kind
        raise ConfigError(f"a network of kind {kind!r} cannot be trained here; train it in its own program")


def canvas_section(config: DetectorConfig) -> CanvasConfig:
    """Return the section ``backbone``."""
    if not isinstance(config.backbone, CanvasConfig):
        raise ConfigError(f"backbone.kind must be 'anchors' or 'centres', got {config.backbone.kind!r}")
    return config.backbone
