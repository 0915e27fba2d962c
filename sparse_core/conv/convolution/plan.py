"""Tiles of the Triton convolution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

#: Types of features and weights that the kernels support.
TRITON_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
Variant = Literal["pipelined", "preloaded", "unrolled"]

#: Multiprocessors of an H100 or H200, for the defaults.
_PROCESSORS = 132
#: Shared memory of a program, and most float32 sums per thread.
_SHARED_BYTES, _SUMS = 220 * 1024, 128
#: Most taps of an unrolled loop.
MOST_UNROLLED_TAPS = 9


@dataclass(frozen=True)
class ConvolutionConfig:
    """Tiles of one launch.

    Attributes:
        variant: ``"pipelined"`` reads the table tap by tap in a loop with ``stages`` loads ahead.
            ``"preloaded"`` reads the entries of all taps first, so that the loop waits only for features and
            weights. ``"unrolled"`` also unrolls the loop over taps, with ``stages`` taps in registers (few
            taps and narrow inputs only).
        block_rows, block_out, block_in: rows, output channels and input channels of a tile; powers of two
            from 16.
        warps: of 32 threads each.
        stages: loads in flight.
    """

    variant: Variant
    block_rows: int
    block_out: int
    block_in: int
    warps: int = 4
    stages: int = 4

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {', '.join(get_args(Variant))}; got {self.variant!r}")
        for name in ("block_rows", "block_out", "block_in"):
            value = getattr(self, name)
            if value < 16 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two from 16, got {value}")
        if self.warps not in (1, 2, 4, 8) or not 1 <= self.stages <= 10:
            raise ValueError(
                f"warps must be 1, 2, 4 or 8 and stages 1 to 10, got {self.warps} and {self.stages}"
            )


@dataclass(frozen=True)
class Shape:
    """Sizes of a convolution.

    Attributes:
        rows: capacity in output rows.
        channels_in, channels_out, taps: of the weight.
        dtype: of the features.
    """

    rows: int
    channels_in: int
    channels_out: int
    taps: int
    dtype: torch.dtype


def power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least ``value`` and at least 16."""
    return max(16, 1 << max(0, value - 1).bit_length())


def fits(config: ConvolutionConfig, shape: Shape) -> bool:
    """True if shared memory, registers and the limits of the variant allow this launch."""
    tile = (config.block_rows + config.block_out) * config.block_in * shape.dtype.itemsize
    if config.variant == "unrolled":
        registers = config.stages * tile // (4 * 32 * config.warps)
        if shape.taps > MOST_UNROLLED_TAPS or config.block_in < shape.channels_in or registers > 128:
            return False
    elif tile * config.stages > _SHARED_BYTES:
        return False
    if config.block_rows * config.block_out > _SUMS * 32 * config.warps:
        return False
    # In a tile wider than the channels, lanes are masked.
    return config.block_in <= power_of_two(shape.channels_in) and config.block_out <= max(
        32, power_of_two(shape.channels_out)
    )


def _programs(config: ConvolutionConfig, shape: Shape) -> int:
    return math.ceil(shape.rows / config.block_rows) * math.ceil(shape.channels_out / config.block_out)


def _block(channels: int, most: int) -> int:
    """Return the widest block of channels, at most ``most``, with no more idle lanes than the narrowest."""
    block = min(most, power_of_two(channels))
    while block > 32 and -(-channels // block) * block > -(-channels // 32) * 32:
        block //= 2
    return block


def default_config(shape: Shape) -> ConvolutionConfig:
    """Return a guess without measurement: many loads in flight, in tiles that occupy most processors.

    At batch 1 a layer waits for memory, not for arithmetic. All taps in flight at once were up to twice as
    fast as smaller tiles on more processors (H200; 64 to 128 channels, 700 to 13,000 rows).
    """
    half = shape.dtype.itemsize <= 2
    if not half or shape.taps > 32:
        return _shallow_config(shape)
    widest = _block(shape.channels_out, 128)
    whole = min(128, power_of_two(shape.channels_out))
    large = ConvolutionConfig("pipelined", 128, whole, 32, warps=8, stages=8)
    if whole > 64 and fits(large, shape) and _programs(large, shape) >= 0.7 * _PROCESSORS:
        return large
    block_in = _block(shape.channels_in, 128)
    tile = (64 + min(widest, 64)) * block_in * shape.dtype.itemsize
    chosen = ConvolutionConfig(
        "pipelined", 64, min(widest, 64), block_in, warps=8, stages=min(8, _SHARED_BYTES // tile)
    )
    return chosen if fits(chosen, shape) else _shallow_config(shape)


def _shallow_config(shape: Shape) -> ConvolutionConfig:
    """Return the largest tile that gives every processor a program, with few loads in flight."""
    half = shape.dtype.itemsize <= 2
    block_in = _block(shape.channels_in, 64 if half else 32)
    widest = _block(shape.channels_out, 128)
    chosen = None
    for block_rows, block_out in ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32), (16, 32)):
        large = block_rows * block_out >= 128 * 64
        chosen = ConvolutionConfig(
            "pipelined" if large or shape.taps > 32 else "preloaded",
            block_rows,
            min(block_out, widest),
            block_in,
            warps=8 if block_rows * min(block_out, widest) >= 128 * 128 else 4,
            stages=3 if large else 5,
        )
        if fits(chosen, shape) and _programs(chosen, shape) >= _PROCESSORS:
            break
    assert chosen is not None
    return chosen


def candidates(shape: Shape) -> list[ConvolutionConfig]:
    """Return the launches to measure first: the default, then every variant with tiles of all sizes.

    Excluded are tiles that leave most processors idle if smaller ones would not, and tiles that give far more
    programs than processors.
    """
    found = [default_config(shape)]
    loads = {config: _programs(config, shape) / _PROCESSORS for config in _grid(shape) if fits(config, shape)}
    enough = min(0.4, max(loads.values(), default=0.0))
    few = max(8.0, 4 * min(loads.values(), default=0.0))
    return found + [config for config, load in loads.items() if enough <= load <= few and config not in found]


def refinements(config: ConvolutionConfig, shape: Shape) -> list[ConvolutionConfig]:
    """Return variations of a fast config: other depths, blocks of input channels and numbers of warps."""
    depths = {"pipelined": (3, 4, 6, 8), "preloaded": (3, 5, 7, 10), "unrolled": (2, 3, 4, 6)}[config.variant]
    whole = power_of_two(shape.channels_in)
    blocks = {config.block_in, 32, 64, 128} if config.variant != "unrolled" else {whole}
    found = [replace(config, stages=stages) for stages in depths]
    found += [replace(config, block_in=block) for block in sorted(blocks) if block <= whole]
    found += [replace(config, warps=warps) for warps in (2, 4, 8)]
    return [other for other in dict.fromkeys(found) if other != config and fits(other, shape)]


def _grid(shape: Shape) -> Iterator[ConvolutionConfig]:
    whole = power_of_two(shape.channels_in)
    block_in = _block(shape.channels_in, 64 if shape.dtype.itemsize <= 2 else 32)
    widths = sorted({min(power_of_two(shape.channels_out), width) for width in (32, 64, 128)})
    for block_rows, block_out in itertools.product((16, 32, 64, 128), widths):
        sums = block_rows * block_out
        warps = 8 if sums > 64 * 128 else 4
        depth = 3 if sums > 64 * 64 else 4
        yield ConvolutionConfig("pipelined", block_rows, block_out, block_in, warps, depth)
        if sums <= 64 * 128 and shape.taps <= 32:
            yield ConvolutionConfig("preloaded", block_rows, block_out, block_in, warps, 5)
        if shape.dtype.itemsize <= 2 and sums <= 64 * 64:
            yield ConvolutionConfig("unrolled", block_rows, block_out, whole, warps, 3)
