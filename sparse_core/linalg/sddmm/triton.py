"""Sampled dense-dense product in Triton: blocks of entries, or BSR blocks on tensor cores.

Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats import BSR
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.sddmm.common import Pattern, positions
from sparse_core.linalg.structure import row_of_entry


@triton.jit
def _entries_kernel(  # type: ignore[no-untyped-def]
    rows,
    columns,
    a,
    b,
    values,
    count,
    depth,
    a_stride,
    b_stride,
    ENTRIES: tl.constexpr,
    DEPTH: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Dot products of rows of ``a`` with rows of ``b`` (which is transposed) for ENTRIES positions."""
    entry = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    inside = entry < count
    row = tl.load(rows + entry, mask=inside, other=0).to(tl.int64)
    column = tl.load(columns + entry, mask=inside, other=0).to(tl.int64)
    total = tl.zeros((ENTRIES, DEPTH), ACCUMULATOR)
    for first in range(0, depth, DEPTH):
        k = first + tl.arange(0, DEPTH)
        wanted = inside[:, None] & (k < depth)[None, :]
        left = tl.load(a + row[:, None] * a_stride + k[None, :], mask=wanted, other=0.0)
        right = tl.load(b + column[:, None] * b_stride + k[None, :], mask=wanted, other=0.0)
        total += left.to(ACCUMULATOR) * right.to(ACCUMULATOR)
    tl.store(values + entry, tl.sum(total, axis=1).to(values.dtype.element_ty), mask=inside)


@triton.jit
def _blocks_kernel(  # type: ignore[no-untyped-def]
    block_rows,
    block_columns,
    a,
    b,
    values,
    row_count,
    column_count,
    depth,
    a_stride,
    b_stride,
    height,
    width,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    OPERAND: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    TENSOR_CORES: tl.constexpr,
):
    """One tile of a block: rows of ``a`` with rows of ``b`` (transposed); zero outside the matrix."""
    tile = tl.program_id(0).to(tl.int64)
    tiles_down = tl.cdiv(height, HEIGHT)
    tiles_across = tl.cdiv(width, WIDTH)
    block = tile // (tiles_down * tiles_across)
    y = tile // tiles_across % tiles_down * HEIGHT + tl.arange(0, HEIGHT)
    x = tile % tiles_across * WIDTH + tl.arange(0, WIDTH)
    row = tl.load(block_rows + block).to(tl.int64) * height + y
    column = tl.load(block_columns + block).to(tl.int64) * width + x
    row_inside = (y < height) & (row < row_count)
    column_inside = (x < width) & (column < column_count)
    total = tl.zeros((HEIGHT, WIDTH), ACCUMULATOR)
    if TENSOR_CORES:
        for first in range(0, depth, DEPTH):
            k = first + tl.arange(0, DEPTH)
            left_wanted = row_inside[:, None] & (k < depth)[None, :]
            right_wanted = column_inside[None, :] & (k < depth)[:, None]
            left = tl.load(a + row[:, None] * a_stride + k[None, :], mask=left_wanted, other=0.0)
            right = tl.load(b + column[None, :] * b_stride + k[:, None], mask=right_wanted, other=0.0)
            total = tl.dot(left.to(OPERAND), right.to(OPERAND), total, input_precision="ieee")
    else:
        for step in range(depth):
            left_column = tl.load(a + row * a_stride + step, mask=row_inside, other=0.0).to(ACCUMULATOR)
            right_row = tl.load(b + column * b_stride + step, mask=column_inside, other=0.0).to(ACCUMULATOR)
            total += left_column[:, None] * right_row[None, :]
    total = tl.where(row_inside[:, None] & column_inside[None, :], total, 0.0)
    target = values + (block * height + y[:, None]) * width + x[None, :]
    stored = (y < height)[:, None] & (x < width)[None, :]
    tl.store(target, total.to(values.dtype.element_ty), mask=stored)


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Return ``(a @ b)`` at the stored positions.

    ``b`` is transposed in memory if needed, so that both operands are read along K.
    """
    dtype = torch.promote_types(a.dtype, b.dtype)
    values = torch.empty(pattern.values.shape, dtype=dtype, device=a.device)
    if values.numel() == 0:
        return values
    a = a if a.stride(1) == 1 else a.contiguous()
    b = b.transpose(0, 1)
    b = b if b.stride(1) == 1 else b.contiguous()
    accumulator = tl.float64 if accumulation_dtype(dtype) == torch.float64 else tl.float32
    if isinstance(pattern, BSR):
        _sample_blocks(pattern, a, b, values, accumulator)
        return values
    depth = min(128, max(4, triton.next_power_of_2(a.shape[1])))
    entries = 2048 // depth
    _launch(
        _entries_kernel,
        triton.cdiv(len(values), entries),
        *positions(pattern),
        a,
        b,
        values,
        len(values),
        a.shape[1],
        a.stride(0),
        b.stride(0),
        ENTRIES=entries,
        DEPTH=depth,
        ACCUMULATOR=accumulator,
    )
    return values


def _sample_blocks(pattern: BSR, a: Tensor, b: Tensor, values: Tensor, accumulator: Any) -> None:
    height, width = pattern.block_size
    half = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
    # Operands of different types are multiplied in the type of the sum.
    operand = half.get(a.dtype, accumulator) if a.dtype == b.dtype else accumulator
    tile_height, tile_width = (min(64, max(16, triton.next_power_of_2(size))) for size in (height, width))
    _launch(
        _blocks_kernel,
        len(values) * triton.cdiv(height, tile_height) * triton.cdiv(width, tile_width),
        row_of_entry(pattern),
        pattern.col,
        a,
        b,
        values,
        *pattern.shape,
        a.shape[1],
        a.stride(0),
        b.stride(0),
        height,
        width,
        HEIGHT=tile_height,
        WIDTH=tile_width,
        DEPTH=min(64, max(16, triton.next_power_of_2(a.shape[1]))),
        OPERAND=operand,
        ACCUMULATOR=accumulator,
        # Double precision would need other tile shapes.
        TENSOR_CORES=accumulator is tl.float32,
    )


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    kernel[(programs,)](*arguments, **constants)
