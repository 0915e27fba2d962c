"""The dense backbone and neck on a canvas of fixed shape: channels last, cuDNN's fused convolutions."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from perception.model.backbone import DenseBackbone
from sparse_core.conv.grid import padded_width


class StaticMaps(nn.Module):
    """Dense backbone and neck on a canvas of fixed shape, (B, C, H, W) to (B, C_out, H/4, W/4)."""

    def __init__(self, backbone: DenseBackbone, neck: nn.Module) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.neck = copy.deepcopy(neck)

    def forward(self, canvas: Tensor) -> Tensor:
        """Map that the head reads."""
        features = self.neck(self.backbone.maps(canvas))
        assert isinstance(features, Tensor)
        return features


def canvas_maps(
    backbone: DenseBackbone,
    neck: nn.Module,
    grid_shape: tuple[int, int],
    *,
    batch_size: int,
    dtype: torch.dtype,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what makes the head's map of pillar features.

    Args:
        backbone, neck: folded; copied.
        grid_shape: rows and columns of the pillars' grid.
        batch_size: frames of a call.
        dtype: of the features.

    Returns:
        Takes (capacity, C) features and their (capacity,) int32 cells of a
        :class:`~sparse_core.conv.grid.FixedGrid`; gives (B * H * W, C_out).
    """
    maps = StaticMaps(backbone, neck).to(dtype)
    maps = maps.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows, columns = grid_shape
    line = padded_width(columns)

    def run(features: Tensor, cells: Tensor) -> Tensor:
        # Cells without a row go to a place behind the canvas.
        inside = torch.where(cells < 0, batch_size * rows * columns, cells // line * columns + cells % line)
        canvas = features.new_zeros(batch_size * rows * columns + 1, features.shape[1])
        canvas = canvas.index_put((inside,), features)
        image = canvas[:-1].view(batch_size, rows, columns, -1).permute(0, 3, 1, 2)
        found: Tensor = maps(image)
        return found.permute(0, 2, 3, 1).reshape(-1, found.shape[1])

    return run
