"""Map from rows of a result to rows of the operand, and parts that kernels of block products share."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

HALF = (torch.float16, torch.bfloat16)
#: Two programs for each multiprocessor of an H100 or H200.
PROGRAMS = 264


class Pixels(NamedTuple):
    """Map from rows of the result to rows of the operand: sizes of both images and of the taps.

    ``transposed``: from an image to the result of its convolution, for gradients.
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
    n, inside, tap, from_height, from_width, to_height, to_width,
    WINDOW: tl.constexpr, CONVOLVES: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Row of the operand for each row of the result at a tap, and whether there is one.

    WINDOW holds the kernel's width and, for y and x each, stride, padding and dilation; it and the sizes of
    images are read only where CONVOLVES: elsewhere rows of the result are those of the operand.
    """
    if CONVOLVES:
        tap_y = tap // WINDOW[0] * WINDOW[5]
        tap_x = tap % WINDOW[0] * WINDOW[6]
        x = n % to_width
        y = n // to_width % to_height
        frame = n // to_width // to_height
        if TRANSPOSED:
            down = y + WINDOW[3] - tap_y
            across = x + WINDOW[4] - tap_x
            found = inside & (down >= 0) & (across >= 0)
            found = found & (down % WINDOW[1] == 0) & (across % WINDOW[2] == 0)
            y = down // WINDOW[1]
            x = across // WINDOW[2]
        else:
            y = y * WINDOW[1] + tap_y - WINDOW[3]
            x = x * WINDOW[2] + tap_x - WINDOW[4]
            found = inside & (y >= 0) & (x >= 0)
        found = found & (y < from_height) & (x < from_width)
        source = (frame * from_height + y) * from_width + x
    else:
        source = n
        found = inside
    return source, found


def constants(pixels: Pixels, dtype: torch.dtype) -> dict[str, Any]:
    """Compile-time constants of both kernels."""
    return {
        "WINDOW": (pixels.kernel_width, *pixels.stride, *pixels.padding, *pixels.dilation),
        "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        "ACCUMULATOR": tl.float64 if dtype == torch.float64 else tl.float32,
    }


def tile_power(size: int) -> int:
    """Return the smallest tile that holds a size."""
    return max(16, 1 << (size - 1).bit_length())
