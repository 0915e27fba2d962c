"""How rows of a result find rows of the operand, and what the kernels of block products share."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

HALF = (torch.float16, torch.bfloat16)
#: Two programs for each multiprocessor of an H100 or H200.
PROGRAMS = 264


class Pixels(NamedTuple):
    """How rows of the result find rows of the operand: sizes of both images and of the taps.

    ``transposed``: from an image to the result of its convolution, as gradients go.
    """

    from_height: int = 1
    from_width: int = 1
    to_height: int = 1
    to_width: int = 1
    kernel_width: int = 1
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


@triton.jit
def operand_rows(  # type: ignore[no-untyped-def]
    n,
    inside,
    tap,
    from_height,
    from_width,
    to_height,
    to_width,
    KERNEL_WIDTH: tl.constexpr,
    STRIDE_Y: tl.constexpr,
    STRIDE_X: tl.constexpr,
    PADDING_Y: tl.constexpr,
    PADDING_X: tl.constexpr,
    DILATION_Y: tl.constexpr,
    DILATION_X: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """Row of the operand for each row of the result at a tap, and whether there is one."""
    tap_y = tap // KERNEL_WIDTH * DILATION_Y
    tap_x = tap % KERNEL_WIDTH * DILATION_X
    x = n % to_width
    y = n // to_width % to_height
    frame = n // to_width // to_height
    if TRANSPOSED:
        down = y + PADDING_Y - tap_y
        across = x + PADDING_X - tap_x
        found = inside & (down >= 0) & (across >= 0)
        found = found & (down % STRIDE_Y == 0) & (across % STRIDE_X == 0)
        y = down // STRIDE_Y
        x = across // STRIDE_X
    else:
        y = y * STRIDE_Y + tap_y - PADDING_Y
        x = x * STRIDE_X + tap_x - PADDING_X
        found = inside & (y >= 0) & (x >= 0)
    found = found & (y < from_height) & (x < from_width)
    return (frame * from_height + y) * from_width + x, found


def constants(pixels: Pixels, dtype: torch.dtype) -> dict[str, Any]:
    """What both kernels know when they are compiled."""
    return {
        "KERNEL_WIDTH": pixels.kernel_width,
        "STRIDE_Y": pixels.stride[0],
        "STRIDE_X": pixels.stride[1],
        "PADDING_Y": pixels.padding[0],
        "PADDING_X": pixels.padding[1],
        "DILATION_Y": pixels.dilation[0],
        "DILATION_X": pixels.dilation[1],
        "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        "ACCUMULATOR": tl.float64 if dtype == torch.float64 else tl.float32,
    }


def tile_power(size: int) -> int:
    """The smallest tile that holds a size."""
    return max(16, 1 << (size - 1).bit_length())
