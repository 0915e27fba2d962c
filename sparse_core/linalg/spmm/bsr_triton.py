"""Block-sparse matrix times dense matrix on tensor cores.

A program multiplies one block row by a tile of columns: every stored block is one product of two tiles,
summed in float32 (float64 for double operands). The longest block rows start first, and all block rows of a
tile of columns run before the next, to keep the tile in the second-level cache. On Hopper, half-precision
tiles use the tensor memory accelerator; all others are loaded through pointers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats import BSR

_HALF = (torch.float16, torch.bfloat16)
#: Two programs per multiprocessor of an H100 or H200.
_PROGRAMS = 264
#: Shared memory of a Hopper multiprocessor, minus Triton's own use.
_SHARED_BYTES = 216 * 1024


class _Tile(NamedTuple):
    """Shape of a program: rows and depth of a block, columns of the dense matrix, warps, stages."""

    rows: int
    depth: int
    columns: int
    warps: int
    stages: int


@triton.jit
def copied_tiles_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    col,
    order,
    blocks,
    dense,
    out,
    block_row_count,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Tiles by bulk copies from tensor descriptors, which fill what lies outside with zeros."""
    block_row = tl.load(order + tl.program_id(0) % block_row_count)
    first_column = (tl.program_id(0) // block_row_count) * COLUMNS
    start = tl.load(row_ptr + block_row)
    end = tl.load(row_ptr + block_row + 1)
    total = tl.zeros((BLOCK_ROWS, COLUMNS), tl.float32)
    column = tl.load(col + start, mask=start < end, other=0)
    for block in tl.range(start, end, num_stages=STAGES):
        # Loaded a step ahead: the copy that needs it must not wait.
        following = tl.load(col + block + 1, mask=block + 1 < end, other=0)
        a = blocks.load([block * BLOCK_ROWS, 0])
        b = dense.load([column * BLOCK_COLUMNS, first_column])
        total = tl.dot(a, b, total)
        column = following
    out.store([block_row * BLOCK_ROWS, first_column], total.to(out.dtype))


@triton.jit
def block_product_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    col,
    order,
    values,
    dense,
    out,
    rows,
    inner,
    width,
    block_row_count,
    row_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """``EVEN``: blocks fill their tiles and the tiles fill the operands, so loads need no masks."""
    parts: tl.constexpr = (BLOCK_ROWS + ROWS - 1) // ROWS
    shares = block_row_count * parts
    share = tl.program_id(0) % shares
    block_row = tl.load(order + share // parts)
    local_row = (share % parts) * ROWS + tl.arange(0, ROWS)
    depth = tl.arange(0, DEPTH)
    n = (tl.program_id(0) // shares) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.load(row_ptr + block_row)
    end = tl.load(row_ptr + block_row + 1)
    # 64 bits: the values of a large matrix are beyond 32.
    size = tl.full((1, 1), BLOCK_ROWS * BLOCK_COLUMNS, tl.int64)
    total = tl.zeros((ROWS, COLUMNS), ACC)
    for block in tl.range(start, end, num_stages=STAGES):
        column = tl.load(col + block).to(tl.int64) * BLOCK_COLUMNS
        stored = values + size * block
        for first in tl.static_range(0, BLOCK_COLUMNS, DEPTH):
            k = first + depth
            left = stored + (local_row[:, None] * BLOCK_COLUMNS + k[None, :])
            right = dense + (column + k)[:, None] * row_stride + n[None, :]
            if EVEN:
                a = tl.load(left)
                b = tl.load(right)
            else:
                used = (k < BLOCK_COLUMNS) & (column + k < inner)
                a = tl.load(left, mask=(local_row < BLOCK_ROWS)[:, None] & used[None, :], other=0)
                b = tl.load(right, mask=used[:, None] & (n < width)[None, :], other=0)
            total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=ACC)
    row = block_row * BLOCK_ROWS + local_row
    target = out + row.to(tl.int64)[:, None] * width + n[None, :]
    if EVEN:
        tl.store(target, total.to(out.dtype.element_ty))
    else:
        mask = ((local_row < BLOCK_ROWS) & (row < rows))[:, None] & (n < width)[None, :]
        tl.store(target, total.to(out.dtype.element_ty), mask=mask)


def spmm(matrix: BSR, dense: Tensor) -> Tensor:
    """Return ``matrix @ dense`` of real operands without gradients.

    Any block size works; tensor cores need multiples of 16. float32 products follow
    ``torch.get_float32_matmul_precision()`` as dense ones do: TF32 unless it is ``"highest"``.
    """
    dtype = torch.promote_types(matrix.dtype, dense.dtype)
    values, dense = matrix.values.to(dtype).contiguous(), dense.to(dtype)
    if dense.stride(1) != 1 or dense.stride(0) < dense.shape[1]:
        dense = dense.contiguous()
    out = torch.empty(matrix.shape[0], dense.shape[1], dtype=dtype, device=dense.device)
    if out.numel() == 0:
        return out
    if len(values) == 0:
        return out.zero_()
    order = matrix.cached("spmm block order", lambda: _longest_first(matrix.row_ptr))
    launch = _copied if copies_tiles(matrix.block_size, dense) else _loaded
    launch(matrix, values, dense, out, order)
    return out


def copies_tiles(block_size: tuple[int, int], dense: Tensor) -> bool:
    """True if the kernel with bulk copies can run: Hopper, half precision, blocks of 16, 32, 64 or 128."""
    return (
        dense.is_cuda
        and torch.cuda.get_device_capability(dense.device) >= (9, 0)
        and dense.dtype in _HALF
        and all(size in (16, 32, 64, 128) for size in block_size)
        and block_size[0] >= 64
        and dense.shape[1] % 8 == 0
        and dense.stride(0) % 8 == 0
        and dense.data_ptr() % 16 == 0
    )


def _copied(matrix: BSR, values: Tensor, dense: Tensor, out: Tensor, order: Tensor) -> None:
    block_rows, block_columns = matrix.block_size
    count = len(order)
    columns = _filling_columns(256, dense.shape[1], count)
    warps, stages = _copied_tile(matrix.block_size, columns, len(values) / count)
    flat = values.view(-1, block_columns)
    grid = (count * triton.cdiv(dense.shape[1], columns),)
    copied_tiles_kernel[grid](
        matrix.row_ptr,
        matrix.col,
        order,
        _descriptor(flat, block_rows, block_columns),
        _descriptor(dense, block_columns, columns),
        _descriptor(out, block_rows, columns),
        count,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        COLUMNS=columns,
        STAGES=stages,
        num_warps=warps,
    )


def _filling_columns(widest: int, width: int, shares: int) -> int:
    """Return the columns of a tile: many, but few enough that every multiprocessor has a program."""
    columns: int = min(widest, max(16, triton.next_power_of_2(width)))
    while columns > 16 and shares * triton.cdiv(width, columns) < _PROGRAMS:
        columns //= 2
    return columns


def _copied_tile(block_size: tuple[int, int], columns: int, mean_blocks: float) -> tuple[int, int]:
    """Return measured warps and stages: deep pipelines for long block rows only."""
    block_rows, block_columns = block_size
    if block_rows * columns < 64 * 256:
        warps, stages = 4, 4
    elif mean_blocks > 24:
        warps, stages = 8, 4
    else:
        warps, stages = (8 if mean_blocks > 8 or block_rows > 64 else 4), 2
    stage_bytes = 2 * (block_rows * block_columns + block_columns * columns)
    return warps, max(2, min(stages, _SHARED_BYTES // stage_bytes))


def _descriptor(tensor: Tensor, rows: int, columns: int) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(tensor, list(tensor.shape), [tensor.stride(0), 1], [rows, columns])


def _loaded(matrix: BSR, values: Tensor, dense: Tensor, out: Tensor, order: Tensor) -> None:
    block_rows, block_columns = matrix.block_size
    rows, inner = matrix.shape
    width = dense.shape[1]
    tile = _loaded_tile(matrix.block_size, width, out.dtype, len(order))
    even = (
        block_rows % tile.rows == 0
        and block_columns % tile.depth == 0
        and rows % block_rows == 0
        and inner % block_columns == 0
        and width % tile.columns == 0
    )
    grid = (len(order) * triton.cdiv(block_rows, tile.rows) * triton.cdiv(width, tile.columns),)
    block_product_kernel[grid](
        matrix.row_ptr,
        matrix.col,
        order,
        values,
        dense,
        out,
        rows,
        inner,
        width,
        len(order),
        dense.stride(0),
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        ROWS=tile.rows,
        DEPTH=tile.depth,
        COLUMNS=tile.columns,
        EVEN=even,
        PRECISION="ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        ACC=tl.float64 if out.dtype == torch.float64 else tl.float32,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )


def _longest_first(row_ptr: Tensor) -> Tensor:
    return torch.argsort(row_ptr.diff(), descending=True, stable=True).to(torch.int32)


def _loaded_tile(block_size: tuple[int, int], width: int, dtype: torch.dtype, block_rows: int) -> _Tile:
    rows = min(128, max(16, triton.next_power_of_2(block_size[0])))
    depth = min(64 if dtype in _HALF else 32, max(16, triton.next_power_of_2(block_size[1])))
    widest = 256 if dtype in _HALF else 64 if dtype == torch.float32 else 32
    columns = _filling_columns(widest, width, block_rows * triton.cdiv(block_size[0], rows))
    warps = 8 if rows * columns >= 64 * 256 else 4
    return _Tile(rows, depth, columns, warps, 3)
