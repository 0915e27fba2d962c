"""Dense backbone and neck on a canvas of fixed shape, channels last, with cuDNN's fused convolutions."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from perception.model.backbone import DenseBackbone
from sparse_core.conv.grid import padded_width


class StaticMaps(nn.Module):
    """Dense backbone and neck from a canvas (B, C, H, W) to a map (B, C_out, H/4, W/4)."""

    def __init__(self, backbone: DenseBackbone, neck: nn.Module) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.neck = copy.deepcopy(neck)

    def forward(self, canvas: Tensor) -> Tensor:
        """Compute the map that the head reads."""
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
    """Make a function that computes the head's map from pillar features.

    Args:
        backbone, neck: folded modules; copied.
        grid_shape: rows and columns of the pillars' grid.

    Returns:
        A function from features (capacity, C) and their cells (capacity,) int32 of a
        :class:`~sparse_core.conv.grid.FixedGrid` to the map (B * H * W, C_out).
    """
    maps = StaticMaps(backbone, neck).to(dtype)
    maps = maps.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows, columns = grid_shape
    line = padded_width(columns)

    def run(features: Tensor, cells: Tensor) -> Tensor:
        # Rows without a cell go to an extra row after the canvas.
        inside = torch.where(cells < 0, batch_size * rows * columns, cells // line * columns + cells % line)
        canvas = features.new_zeros(batch_size * rows * columns + 1, features.shape[1])
        canvas = canvas.index_put((inside,), features)
        image = canvas[:-1].view(batch_size, rows, columns, -1).permute(0, 3, 1, 2)
        found: Tensor = maps(image)
        return found.permute(0, 2, 3, 1).reshape(-1, found.shape[1])

    return run
