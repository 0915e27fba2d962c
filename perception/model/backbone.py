"""Backbone: pillar features to two bird's-eye maps, sparse or dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from perception.config import BackboneConfig
from perception.model.layers import DenseBlock, DenseUnit, SparseBlock, SparseUnit
from sparse_core.conv import SparseTensor


class BackboneMaps(NamedTuple):
    """Output of the backbone, input of the neck.

    Attributes:
        fine: (B, C_fine, 2H/s, 2W/s) for H x W pillars and stride s; a sparse backbone leaves zeros at
            inactive cells.
        coarse: (B, C_coarse, H/s, W/s).
    """

    fine: Tensor
    coarse: Tensor


def _make_stages(
    config: BackboneConfig,
    in_channels: int,
    *,
    unit: Callable[[int, int, int], nn.Module],
    block: Callable[[int], nn.Module],
) -> nn.ModuleList:
    """Make the stages: a ``unit(width_in, width_out, stride)`` if the shape changes, then blocks."""
    stages: list[nn.Module] = []
    width = in_channels
    for level, (channels, blocks) in enumerate(zip(config.channels, config.blocks, strict=True)):
        layers: list[nn.Module] = []
        if level > 0 or channels != width:
            layers.append(unit(width, channels, 2 if level > 0 else 1))
        layers.extend(block(channels) for _ in range(blocks))
        stages.append(nn.Sequential(*layers))
        width = channels
    return nn.ModuleList(stages)


class SparseBackbone(nn.Module):
    """Residual submanifold stages with strided layers between them.

    Args:
        config: stages.
        in_channels: width of the pillar features.
        fine_channels: width of the finer output map.
        coarse_channels: width of the coarser output map.
    """

    def __init__(
        self, config: BackboneConfig, *, in_channels: int, fine_channels: int, coarse_channels: int
    ) -> None:
        super().__init__()
        self.stages = _make_stages(
            config,
            in_channels,
            unit=lambda width, channels, stride: SparseUnit(width, channels, config, stride=stride),
            block=lambda channels: SparseBlock(channels, config),
        )
        width = config.channels[-1]
        self.lateral = SparseUnit(width, fine_channels, config, kernel_size=1, relu=False)
        self.down = SparseUnit(width, coarse_channels, config, stride=2)

    def forward(self, pillars: SparseTensor) -> BackboneMaps:
        """Compute dense maps from pillar features (M, C)."""
        return BackboneMaps(*(cells.to_dense(channels_last=True) for cells in self.cells(pillars)))

    def cells(self, pillars: SparseTensor) -> tuple[SparseTensor, SparseTensor]:
        """Compute the active cells of the fine and the coarse map from pillar features (M, C)."""
        for stage in self.stages:
            pillars = stage(pillars)
        return self.lateral(pillars), self.down(pillars)


class DenseBackbone(nn.Module):
    """The same network on the full grid: the dense baseline."""

    def __init__(
        self, config: BackboneConfig, *, in_channels: int, fine_channels: int, coarse_channels: int
    ) -> None:
        super().__init__()
        self.stages = _make_stages(
            config,
            in_channels,
            unit=lambda width, channels, stride: DenseUnit(width, channels, stride=stride),
            block=DenseBlock,
        )
        width = config.channels[-1]
        self.lateral = DenseUnit(width, fine_channels, kernel_size=1, relu=False)
        self.down = DenseUnit(width, coarse_channels, stride=2)

    def forward(self, pillars: SparseTensor) -> BackboneMaps:
        """Compute dense maps from pillar features (M, C) on a dense canvas."""
        return self.maps(pillars.to_dense(channels_last=True))

    def maps(self, canvas: Tensor) -> BackboneMaps:
        """Compute dense maps from a canvas (B, C, H, W)."""
        for stage in self.stages:
            canvas = stage(canvas)
        return BackboneMaps(self.lateral(canvas), self.down(canvas))
