"""Dense neck: fills in object centres at low resolution, then adds the finer map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perception.config import NeckConfig
from perception.model.backbone import BackboneMaps
from perception.model.layers import DenseBlock, DenseUnit


class Neck(nn.Module):
    """Residual blocks at the coarse resolution, a transposed convolution, and the fine map added."""

    def __init__(self, config: NeckConfig) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(DenseBlock(config.channels) for _ in range(config.blocks)))
        self.up = DenseUnit(config.channels, config.out_channels, stride=2, transposed=True, relu=False)
        self.out = DenseUnit(config.out_channels, config.out_channels)

    def forward(self, maps: BackboneMaps) -> Tensor:
        """Compute (B, out_channels, 2H/s, 2W/s) from the maps at 1/s and 2/s."""
        raised = self.up(self.blocks(maps.coarse), skip=maps.fine)
        result = self.out(torch.relu(raised))
        assert isinstance(result, Tensor)
        return result
