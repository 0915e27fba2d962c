"""Gradients of blocks: each is a product of two tall tiles, over one or several pieces of the rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.dynamic.rigl.block_product.pixels_triton import (
    HALF,
    PROGRAMS,
    Pixels,
    constants,
    operand_rows,
    tile_power,
)
from sparse_core.dynamic.rigl.block_product.plan import BlockPlan


@triton.jit
def block_gradient_kernel(  # type: ignore[no-untyped-def]
    place, tap, x, gradient, out,
    rows, blocks, piece,
    x_stride, gradient_stride, from_height, from_width, to_height, to_width,
    PER_ROW: tl.constexpr, CELL_ROWS: tl.constexpr, CELL_COLUMNS: tl.constexpr, HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, CONVOLVES: tl.constexpr, WINDOW: tl.constexpr,
    PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A WIDTH x HEIGHT tile of one block's gradient, transposed, from a piece of the rows."""
    down: tl.constexpr = (CELL_ROWS + HEIGHT - 1) // HEIGHT
    across: tl.constexpr = (CELL_COLUMNS + WIDTH - 1) // WIDTH
    tile = tl.program_id(0) % (down * across)
    block = tl.program_id(0) // (down * across) % blocks
    part = tl.program_id(0) // (down * across) // blocks
    j = tile // across * HEIGHT + tl.arange(0, HEIGHT)
    k = tile % across * WIDTH + tl.arange(0, WIDTH)
    column = tl.load(place + block) * CELL_COLUMNS + k
    feature = block // PER_ROW * CELL_ROWS + j
    wide_x = tl.cast(x_stride, tl.int64)
    wide_gradient = tl.cast(gradient_stride, tl.int64)
    at = tl.load(tap + block)
    total = tl.zeros((WIDTH, HEIGHT), ACCUMULATOR)
    for first in tl.range(part * piece, tl.minimum(part * piece + piece, rows), DEPTH, num_stages=STAGES):
        n = first + tl.arange(0, DEPTH)
        inside = n < rows
        source, found = operand_rows(
            n, inside, at, from_height, from_width, to_height, to_width, WINDOW, CONVOLVES, False
        )
        left = x + source.to(tl.int64)[None, :] * wide_x + column[:, None]
        right = gradient + n.to(tl.int64)[:, None] * wide_gradient + feature[None, :]
        a = tl.load(left, mask=found[None, :] & (k < CELL_COLUMNS)[:, None], other=0.0)
        b = tl.load(right, mask=inside[:, None] & (j < CELL_ROWS)[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    size = tl.full((1, 1), CELL_ROWS * CELL_COLUMNS, tl.int64)
    target = out + size * (part * blocks + block) + (j[:, None] * CELL_COLUMNS + k[None, :])
    kept = (j < CELL_ROWS)[:, None] & (k < CELL_COLUMNS)[None, :]
    tl.store(target, tl.trans(total).to(out.dtype.element_ty), mask=kept)


def block_gradients(
    x: Tensor, gradient: Tensor, plan: BlockPlan, pixels: Pixels, *, convolves: bool
) -> Tensor:
    """(count, cell_rows, cell_columns): ``gradient.T @ x`` within the blocks.

    Args:
        x: (rows, columns), or the pixels of a convolution's input.
        gradient: (rows, rows of the weight), or its output's.
        plan: places of the blocks.
        pixels: sizes of both images.
        convolves: True if rows are pixels.
    """
    grid = plan.grid
    height, width = (min(128, tile_power(size)) for size in (grid.cell_rows, grid.cell_columns))
    tiles = triton.cdiv(grid.cell_rows, height) * triton.cdiv(grid.cell_columns, width)
    depth = 64 if x.dtype in HALF else 32
    parts = _parts(len(gradient), depth, grid.count * tiles)
    piece = triton.cdiv(triton.cdiv(len(gradient), parts), depth) * depth
    exact = torch.promote_types(x.dtype, torch.float32)
    out = x.new_empty((parts, *grid.values_shape), dtype=x.dtype if parts == 1 else exact)
    block_gradient_kernel[(parts * grid.count * tiles,)](
        plan.forward.place, plan.forward.tap, x, gradient, out,
        len(gradient), grid.count, piece, x.stride(0), gradient.stride(0),
        pixels.from_height, pixels.from_width, pixels.to_height, pixels.to_width,
        PER_ROW=grid.per_row, CELL_ROWS=grid.cell_rows, CELL_COLUMNS=grid.cell_columns,
        HEIGHT=height, WIDTH=width, DEPTH=depth, CONVOLVES=convolves,
        **constants(pixels, x.dtype), STAGES=3, num_warps=8 if height * width >= 128 * 128 else 4,
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(dim=0).to(x.dtype)


def _parts(rows: int, depth: int, programs: int) -> int:
    """Return the number of pieces of the rows: enough to fill the device, none too short."""
    parts = 1
    while parts * programs < 2 * PROGRAMS and rows >= 2 * parts * 8 * depth:
        parts *= 2
    return parts
