"""Table of measured tiles: a choice, and the case it depends on."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

import torch

from sparse_core.conv.convolution.plan import ConvolutionConfig, Shape
from sparse_core.kernels.choices import Tuner, device_name


class ConvolutionChoice(NamedTuple):
    """A measured choice.

    Attributes:
        config: the fastest tiles.
        microseconds: measured time of a launch in a CUDA graph, or 0.
    """

    config: ConvolutionConfig
    microseconds: float


class ConvolutionCase(NamedTuple):
    """Case that a choice depends on.

    Attributes:
        device: name of the GPU.
        dtype: of the features, as ``str(dtype)``.
        channels_in, channels_out, taps: of the weight.
        rows: output rows, rounded by :func:`row_bucket`.
    """

    device: str
    dtype: str
    channels_in: int
    channels_out: int
    taps: int
    rows: int


def _choice(entry: list) -> ConvolutionChoice:
    variant, block_rows, block_out, block_in, warps, stages, microseconds = entry
    sizes = map(int, (block_rows, block_out, block_in, warps, stages))
    return ConvolutionChoice(ConvolutionConfig(variant, *sizes), float(microseconds))


#: Measures only on request, because compiling the alternatives of a size takes up to a minute.
TUNER: Tuner[ConvolutionCase, ConvolutionChoice] = Tuner(
    "convolution",
    1,
    Path(__file__).with_name("measured.json"),
    parse=_choice,
    entry=lambda choice: [*astuple(choice.config), round(choice.microseconds, 2)],
    mode="table",
)
convolution_tuning = TUNER.tuning


def row_bucket(rows: int) -> int:
    """Round ``rows`` up to a power of two, at least 128."""
    return max(128, 1 << max(0, rows - 1).bit_length())


def case_of(shape: Shape, device: torch.device) -> ConvolutionCase:
    """Return the case of a convolution."""
    name = device_name(torch.cuda.current_device() if device.index is None else device.index)
    bucket = row_bucket(shape.rows)
    return ConvolutionCase(name, str(shape.dtype), shape.channels_in, shape.channels_out, shape.taps, bucket)
