"""Packed weights of a refinement step: (inputs, outputs), padded to powers of two."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from perception.geometry import GroundGrid
from perception.model.layers import PointUnit
from perception.model.refine import OUTPUTS, POINT_FEATURES, RefineStage

#: Number of map samples: the centre and the middles of the four sides.
SPOTS = 5
#: Smallest matrix extent for tensor cores.
_SMALLEST = 16
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class PackedRefine(NamedTuple):
    """Folded weights of a :class:`~perception.model.refine.RefineStage`.

    Extents are padded with zeros to powers of two, at least 16. ``P1, P2, P3`` are the padded widths of the
    point layers, ``C`` of the map, ``H1, H2`` of the hidden layers. The first hidden layer is split by input,
    because the map's part need not wait for the points.

    Attributes:
        points_1: (16, P1) float32, ``points_2`` (P1, P2), ``points_3`` (P2, P3): layers on points.
        points_bias_1, points_bias_2, points_bias_3: float32 biases.
        joined_points: (P3, H1) first hidden layer, from the pooled points.
        joined_map: (5, C, H1) first hidden layer, from the samples of the map.
        joined_rest: (classes + 4, H1) float32 first hidden layer, from the one-hot class and the logarithms
            of the number of points and of the sizes.
        joined_bias: (H1,) float32.
        hidden: (H1, H2) second hidden layer; ``hidden_bias`` (H2,) float32.
        out: (H2, 16) float32 last layer; ``out_bias`` (16,) float32.
        classes, map_channels: number of classes and of map channels.
        margin_m: margin of the crop.
        grid: grid of the map.
    """

    points_1: Tensor
    points_bias_1: Tensor
    points_2: Tensor
    points_bias_2: Tensor
    points_3: Tensor
    points_bias_3: Tensor
    joined_points: Tensor
    joined_map: Tensor
    joined_rest: Tensor
    joined_bias: Tensor
    hidden: Tensor
    hidden_bias: Tensor
    out: Tensor
    out_bias: Tensor
    classes: int
    map_channels: int
    margin_m: float
    grid: GroundGrid

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the large products; sums are float32."""
        return self.points_2.dtype


def pack_refine(
    stage: RefineStage, *, dtype: torch.dtype = torch.float16, device: torch.device | str | None = None
) -> PackedRefine:
    """Pack the weights of a refinement step for :func:`~perception.stages.refine.fixed_refine`.

    Args:
        stage: stage in evaluation mode, folded or not; not changed.
        dtype: float16, bfloat16 or float32. The first and the last layer, scalar inputs and biases are always
            float32.
        device: device of the weights; None: that of the stage.
    """
    if dtype not in DTYPES:
        raise TypeError(f"dtype must be one of {DTYPES}, got {dtype}")
    if stage.training:
        raise ValueError("pack_refine needs a stage in evaluation mode. Call stage.eval() first.")
    if len(stage.point_layers) != 3:
        raise ValueError(
            f"fixed refinement needs three point layers (refine.channels), got {len(stage.point_layers)}"
        )
    device = stage.out.weight.device if device is None else device
    with torch.no_grad():
        points = [layer.folded() for layer in stage.point_layers if isinstance(layer, PointUnit)]
        joined, hidden = (layer.folded() for layer in stage.hidden if isinstance(layer, PointUnit))
        channels = (joined[0].shape[1] - points[-1][0].shape[0] - stage.classes - 4) // SPOTS
        pooled, maps, rest = joined[0].split(
            [points[-1][0].shape[0], SPOTS * channels, stage.classes + 4], dim=1
        )
        maps = torch.stack([_matrix(part) for part in maps.split(channels, dim=1)])

        def low(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype)

        def high(tensor: Tensor) -> Tensor:
            return tensor.to(device, torch.float32)

        return PackedRefine(
            points_1=high(_matrix(points[0][0])),
            points_bias_1=high(_vector(points[0][1])),
            points_2=low(_matrix(points[1][0])),
            points_bias_2=high(_vector(points[1][1])),
            points_3=low(_matrix(points[2][0])),
            points_bias_3=high(_vector(points[2][1])),
            joined_points=low(_matrix(pooled)),
            joined_map=low(maps),
            joined_rest=high(_matrix(rest)[: stage.classes + 4].contiguous()),
            joined_bias=high(_vector(joined[1])),
            hidden=low(_matrix(hidden[0])),
            hidden_bias=high(_vector(hidden[1])),
            out=high(_matrix(stage.out.weight)),
            out_bias=high(_vector(stage.out.bias)),
            classes=stage.classes,
            map_channels=channels,
            margin_m=float(stage.config.margin_m),
            grid=stage.grid,
        )


def _padded(size: int) -> int:
    return max(_SMALLEST, 1 << (size - 1).bit_length())


def _matrix(weight: Tensor) -> Tensor:
    """Convert (C_out, C_in) to padded (C_in, C_out)."""
    outputs, inputs = weight.shape
    matrix = weight.new_zeros(_padded(inputs), _padded(outputs))
    matrix[:inputs, :outputs] = weight.T
    return matrix


def _vector(bias: Tensor) -> Tensor:
    vector = bias.new_zeros(_padded(len(bias)))
    vector[: len(bias)] = bias
    return vector


# With the age.
assert POINT_FEATURES + 1 <= _SMALLEST
assert OUTPUTS <= _SMALLEST
