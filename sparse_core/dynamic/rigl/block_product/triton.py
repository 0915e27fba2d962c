"""Block products on tensor cores: every block is a product of two tiles, summed in float32.

The same two kernels serve Linear layers and convolutions (as an implicit product over the taps of each block,
channels last in memory). Sums have a fixed order: results repeat to the bit. Runs on CUDA, and on a CPU
through ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.dynamic.rigl.block_product.gradient_triton import block_gradients
from sparse_core.dynamic.rigl.block_product.pixels_triton import (
    HALF,
    PROGRAMS,
    Pixels,
    constants,
    operand_rows,
    tile_power,
)
from sparse_core.dynamic.rigl.block_product.plan import BlockPlan, Gather, Taps

#: Shared memory of a Hopper multiprocessor, minus Triton's own use.
_SHARED_BYTES = 216 * 1024


@triton.jit
def gathered_product_kernel(  # type: ignore[no-untyped-def]
    start, block, place, tap, longest, values, x, bias, out,
    rows, shares,
    x_stride, out_stride, from_height, from_width, to_height, to_width,
    OUT: tl.constexpr, IN: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
    TRANSPOSED: tl.constexpr, CONVOLVES: tl.constexpr, BIASED: tl.constexpr, WINDOW: tl.constexpr,
    PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """ROWS rows of the result by WIDTH of the OUT features of one of its blocks.

    The weight's blocks are (OUT, IN) in memory, or (IN, OUT) where TRANSPOSED.
    """
    parts: tl.constexpr = (OUT + WIDTH - 1) // WIDTH
    share = tl.program_id(0) % shares
    features = tl.load(longest + share // parts)
    j = (share % parts) * WIDTH + tl.arange(0, WIDTH)
    n = (tl.program_id(0) // shares) * ROWS + tl.arange(0, ROWS)
    inside = n < rows
    depth = tl.arange(0, DEPTH)
    # 64 bits: large weights and operands are beyond 32.
    size = tl.full((1, 1), OUT * IN, tl.int64)
    wide_stride = tl.cast(x_stride, tl.int64)
    begin = tl.load(start + features)
    end = tl.load(start + features + 1)
    total = tl.zeros((ROWS, WIDTH), ACCUMULATOR)
    # Places are loaded a step ahead: the copies that need them must not wait.
    number = tl.load(block + begin, mask=begin < end, other=0)
    spot = tl.load(place + begin, mask=begin < end, other=0)
    at = tl.load(tap + begin, mask=begin < end, other=0)
    for entry in tl.range(begin, end, num_stages=STAGES):
        stored = values + size * number
        first = spot * IN
        here = at
        number = tl.load(block + entry + 1, mask=entry + 1 < end, other=0)
        spot = tl.load(place + entry + 1, mask=entry + 1 < end, other=0)
        at = tl.load(tap + entry + 1, mask=entry + 1 < end, other=0)
        source, found = operand_rows(
            n, inside, here, from_height, from_width, to_height, to_width, WINDOW, CONVOLVES, TRANSPOSED
        )
        lines = x + source.to(tl.int64)[:, None] * wide_stride
        for shift in tl.static_range(0, IN, DEPTH):
            k = shift + depth
            left = lines + (first + k)[None, :]
            if TRANSPOSED:
                right = stored + (k[:, None] * OUT + j[None, :])
            else:
                right = stored + (j[None, :] * IN + k[:, None])
            if IN % DEPTH == 0:
                a = tl.load(left, mask=found[:, None], other=0.0)
            else:
                a = tl.load(left, mask=found[:, None] & (k < IN)[None, :], other=0.0)
            if IN % DEPTH == 0 and OUT % WIDTH == 0:
                b = tl.load(right)
            else:
                b = tl.load(right, mask=(k < IN)[:, None] & (j < OUT)[None, :], other=0.0)
            total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    feature = features * OUT + j
    if BIASED:
        total += tl.load(bias + feature, mask=j < OUT, other=0.0).to(ACCUMULATOR)[None, :]
    target = out + n.to(tl.int64)[:, None] * out_stride + feature[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=inside[:, None] & (j < OUT)[None, :])


def product(x: Tensor, values: Tensor, plan: BlockPlan, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``: (N, rows) of (N, columns)."""
    out = x.new_empty(len(x), plan.grid.rows)
    _gather_product(x, values, plan.forward, out, bias, plan)
    return out


def transposed_product(gradient: Tensor, values: Tensor, plan: BlockPlan) -> Tensor:
    """``gradient @ weight``: (N, columns) of (N, rows)."""
    out = gradient.new_empty(len(gradient), plan.grid.columns)
    _gather_product(gradient, values, plan.backward, out, None, plan, transposed=True)
    return out


def value_gradient(x: Tensor, gradient: Tensor, plan: BlockPlan) -> Tensor:
    """``gradient.T @ x`` within the blocks."""
    return block_gradients(x, gradient, plan, Pixels(), convolves=False)


def convolution(x: Tensor, values: Tensor, plan: BlockPlan, taps: Taps, bias: Tensor | None) -> Tensor:
    """(B, rows, H', W') of ``x`` (B, C, H, W), both channels last in memory."""
    size = taps.extent((x.shape[2], x.shape[3]))
    out = x.new_empty(len(x), *size, plan.grid.rows)
    pixels = _pixels((x.shape[2], x.shape[3]), size, taps)
    _gather_product(_lines(x), values, plan.forward, out.flatten(0, 2), bias, plan, pixels=pixels)
    return out.permute(0, 3, 1, 2)


def transposed_convolution(
    gradient: Tensor, values: Tensor, plan: BlockPlan, taps: Taps, x: Tensor
) -> Tensor:
    """Gradient of ``x``, channels last in memory."""
    size = (x.shape[2], x.shape[3])
    out = x.new_empty(len(x), *size, x.shape[1])
    pixels = _pixels((gradient.shape[2], gradient.shape[3]), size, taps)
    target = out.flatten(0, 2)
    _gather_product(
        _lines(gradient), values, plan.backward, target, None, plan, transposed=True, pixels=pixels
    )
    return out.permute(0, 3, 1, 2)


def convolution_value_gradient(x: Tensor, gradient: Tensor, plan: BlockPlan, taps: Taps) -> Tensor:
    """Gradient of the blocks of a convolution."""
    pixels = _pixels((x.shape[2], x.shape[3]), (gradient.shape[2], gradient.shape[3]), taps)
    return block_gradients(_lines(x), _lines(gradient), plan, pixels, convolves=True)


def _lines(x: Tensor) -> Tensor:
    """(B * H * W, C) of (B, C, H, W), channels last in memory."""
    return x.permute(0, 2, 3, 1).flatten(0, 2)


def _pixels(from_size: tuple[int, int], to_size: tuple[int, int], taps: Taps) -> Pixels:
    return Pixels(*from_size, *to_size, taps.kernel[1], taps.stride, taps.padding, taps.dilation)


def _gather_product(
    x: Tensor,
    values: Tensor,
    gather: Gather,
    out: Tensor,
    bias: Tensor | None,
    plan: BlockPlan,
    *,
    transposed: bool = False,
    pixels: Pixels | None = None,
) -> None:
    grid = plan.grid
    down, across = (grid.cell_rows, grid.cell_columns)
    wide, deep = (across, down) if transposed else (down, across)
    rows, width, depth, warps, stages = _tile(len(out), wide, deep, len(gather.longest), x.dtype)
    shares = len(gather.longest) * triton.cdiv(wide, width)
    place = pixels or Pixels()
    gathered_product_kernel[(shares * triton.cdiv(len(out), rows),)](
        gather.start, gather.block, gather.place, gather.tap, gather.longest,
        values.contiguous(), x, x if bias is None else bias, out,
        len(out), shares, x.stride(0), out.stride(0),
        place.from_height, place.from_width, place.to_height, place.to_width,
        OUT=wide, IN=deep, ROWS=rows, WIDTH=width, DEPTH=depth,
        TRANSPOSED=transposed, CONVOLVES=pixels is not None, BIASED=bias is not None,
        **constants(place, x.dtype), STAGES=stages, num_warps=warps,
    )  # fmt: skip


def _tile(
    rows: int, wide: int, deep: int, features: int, dtype: torch.dtype
) -> tuple[int, int, int, int, int]:
    """Return rows, features and depth of a program's tiles, warps and stages."""
    width = min(128, tile_power(wide))
    depth = min(64 if dtype in HALF else 32, tile_power(deep))
    height = min(128 if dtype.itemsize <= 4 else 32, tile_power(rows))
    while height > 64 and _programs(rows, height, wide, width, features) < PROGRAMS:
        height //= 2
    while width > 16 and height <= 64 and _programs(rows, height, wide, width, features) < PROGRAMS:
        width //= 2
    # One step of the loop loads the whole depth of a block.
    stage_bytes = dtype.itemsize * _up(deep, depth) * (height + width)
    if height > 64 and 2 * stage_bytes > _SHARED_BYTES:
        height, stage_bytes = 64, dtype.itemsize * _up(deep, depth) * (64 + width)
    warps = 8 if height * width >= 128 * 128 else 4
    return height, width, depth, warps, max(1, min(4, _SHARED_BYTES // stage_bytes))


def _programs(rows: int, height: int, wide: int, width: int, features: int) -> int:
    return -(-rows // height) * -(-wide // width) * features


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
