"""Convolutions of whole maps by the CUDA kernel in ``hopper.cu``.

Triton gathers every tap of every cell anew, which on small maps takes longer than the products.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from perception.stages.backbone.units import Unit
from perception.stages.head.types import HeatWeights
from sparse_core.kernels import nvrtc, torch_internals

_SOURCE = Path(__file__).with_name("hopper.cu")
#: Output channels of a thread block, the largest that divides them first.
_WIDTHS = (96, 64)
_HIDDEN = (64, 96)
_MOST_CLASSES = 8
_SHARED_BYTES = 227 * 1024
_POINTERS = (
    *("features", "weight", "bias", "residual", "out"),
    *("hidden", "hidden_bias", "heat", "heat_bias", "scores"),
)
_NUMBERS = ("height", "width", "lines", "columns", "channels", "relu")


class _Problem(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in _POINTERS],
        *[(name, ctypes.c_int) for name in _NUMBERS],
    ]


def supports(unit: Unit, heat: HeatWeights | None, spatial_shape: tuple[int, int], batch_size: int) -> bool:
    """Return True if the kernel runs on the weight's device and is the fastest for these layers and maps.

    Args:
        unit: packed 3x3 convolution.
        heat: layers of the heat map of its result, or None.
        spatial_shape: rows and columns of the maps.
    """
    weight = unit.weight
    if weight.dtype not in (torch.float16, torch.bfloat16) or not nvrtc.compiles_for_hopper(weight.device):
        return False
    channels_in, channels_out = weight.shape[1:]
    cut = _cut(weight, heat, spatial_shape, batch_size)
    if channels_in % 16 or cut is None:
        return False
    # With more blocks than processors, loading weights would not overlap with computation.
    if batch_size * cut.lines * cut.columns * (channels_out // cut.width) > _processors(weight.device):
        return False
    if heat is None:
        return True
    return cut.width == channels_out and heat.hidden_channels in _HIDDEN and heat.classes <= _MOST_CLASSES


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class _Cut(NamedTuple):
    """Tiling of a map: output channels and groups of warps per thread block, lines and columns of tiles."""

    width: int
    groups: int
    lines: int
    columns: int


def _cut(
    weight: Tensor, heat: HeatWeights | None, spatial_shape: tuple[int, int], batch_size: int
) -> _Cut | None:
    """Choose the tiling; None if the weights do not fit in shared memory."""
    channels_in, channels_out = weight.shape[1:]
    width = next((width for width in _WIDTHS if channels_out % width == 0), None)
    if width is None or _shared_bytes(channels_in, width, 1, heat) > _SHARED_BYTES:
        return None
    height, columns = spatial_shape
    lines = -(-height // 8)
    # Two groups of warps halve the reads of weights; use one if two would leave processors idle.
    large = batch_size * lines * -(-columns // 8) * (channels_out // width) > _processors(weight.device)
    groups = 2 if large and _shared_bytes(channels_in, width, 2, heat) <= _SHARED_BYTES else 1
    return _Cut(width, groups, lines, -(-columns // (8 * groups)))


def _shared_bytes(channels_in: int, width: int, groups: int, heat: HeatWeights | None) -> int:
    cells = 10 * (8 * groups + 2) | 1
    weights, numbers = 9 * channels_in * width, width
    if heat is not None:
        weights += width * heat.hidden_channels
        numbers += heat.hidden_channels * (1 + heat.classes)
    return 2 * weights + channels_in // 8 * cells * 16 + 10 * 8 + 4 * numbers


class MapLaunch:
    """The kernel for one convolution and maps of one size.

    Args:
        unit, heat: layers that :func:`supports` accepts.
        spatial_shape: rows and columns of the maps.
    """

    def __init__(
        self, unit: Unit, heat: HeatWeights | None, spatial_shape: tuple[int, int], batch_size: int
    ) -> None:
        weight = unit.weight
        channels_in, channels_out = weight.shape[1:]
        cut = _cut(weight, heat, spatial_shape, batch_size)
        assert cut is not None
        height, columns = spatial_shape
        blocks = channels_out // cut.width
        # Tensor cores read 8 x 8 blocks of the matrices.
        parts = weight.view(9, channels_in // 8, 8, blocks, cut.width).permute(3, 0, 1, 4, 2)
        self._weight = parts.contiguous()
        bias = unit.bias
        self._bias = weight.new_zeros(channels_out, dtype=torch.float32) if bias is None else bias
        self._classes = 0
        self._problem = _Problem(
            weight=self._weight.data_ptr(),
            bias=self._bias.data_ptr(),
            height=height,
            width=columns,
            lines=cut.lines,
            columns=cut.columns,
            channels=channels_out,
            relu=int(unit.relu),
        )
        if heat is not None:
            self._classes = heat.classes
            between = heat.hidden_channels
            hidden = heat.hidden[:channels_out, :between].reshape(channels_out // 8, 8, between)
            last = heat.heat[:between, : heat.classes].float()
            self._heat = (
                hidden.permute(0, 2, 1).contiguous(),
                heat.hidden_bias,
                last.contiguous(),
                heat.heat_bias,
            )
            names = ("hidden", "hidden_bias", "heat", "heat_bias")
            for name, tensor in zip(names, self._heat, strict=True):
                setattr(self._problem, name, tensor.data_ptr())
        defines = {
            "C": channels_in,
            "N": cut.width,
            "GROUPS": cut.groups,
            "BF16": int(weight.dtype == torch.bfloat16),
            "CLASSES": self._classes,
            "HIDDEN": 64 if heat is None else heat.hidden_channels,
        }
        kernel = nvrtc.compile_kernel(_SOURCE, "convolve", defines, weight.device)
        grid = (batch_size * cut.lines * cut.columns, blocks, 1)
        shared = _shared_bytes(channels_in, cut.width, cut.groups, heat)
        self._launch = kernel.prepare(grid, 128 * cut.groups, (self._problem,), shared, dependent=True)
        self._shape, self._batch_size, self._channels = spatial_shape, batch_size, channels_out
        self._inputs = (batch_size * height * columns, channels_in)
        self._device, self._dtype = weight.device, weight.dtype
        self._lock = Lock()  # arguments are read at the launch

    def __call__(self, features: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Convolve a map; return it and its heat map, if any.

        Args:
            features: (B * H * W, C_in) contiguous.
            residual: (B * H * W, C_out) contiguous, or None.
        """
        found = torch.empty((len(features), self._channels), dtype=self._dtype, device=self._device)
        for name, tensor, shape in (
            ("features", features, self._inputs),
            ("residual", residual, found.shape),
        ):
            if tensor is None:
                continue
            if tensor.shape != shape or tensor.dtype != self._dtype or tensor.device != self._device:
                raise ValueError(
                    f"{name} must be {tuple(shape)} {self._dtype} on {self._device}, got"
                    f" {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
                )
        features = features.contiguous()
        residual = None if residual is None else residual.contiguous()
        scores: Tensor | None = None
        if self._classes:
            sizes = (self._batch_size, self._classes, *self._shape)
            scores = torch.empty(sizes, dtype=torch.float32, device=self._device)
        problem = self._problem
        with self._lock:
            problem.features, problem.out = features.data_ptr(), found.data_ptr()
            problem.residual = None if residual is None else residual.data_ptr()
            problem.scores = None if scores is None else scores.data_ptr()
            self._launch(torch_internals.raw_stream(self._device.index))
        return found, scores
