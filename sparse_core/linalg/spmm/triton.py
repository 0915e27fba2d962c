"""Sparse matrix times dense matrix in Triton: rows of CSR, long rows in pieces of their own.

A program sums a few rows over a block of columns. Rows longer than ``_PIECE`` entries are summed in pieces,
in a second launch, and the pieces are added in order in a third: no atomics, so the bits do not change from
run to run. Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.launches import launch as _launch
from sparse_core.launches import scratch
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.spmm.common import apart, side_by_side
from sparse_core.linalg.structure import cut_rows

#: Entries of a row that one program sums at most.
_PIECE = 1024
#: Batches that one launch covers: the second dimension of a CUDA grid.
_BATCHES = 65535


class RowPlan(NamedTuple):
    """How the rows of a matrix are shared out; depends on the structure alone.

    Attributes:
        mean_length: entries a row, on average.
        starts, ends: (M,) first entry of each row, and one past its last.
        order: (M,) rows sorted by length when rows side by side differ much in length, else None.
        long_rows: (L,) rows of more than ``_PIECE`` entries.
        first_piece: (L + 1,) first piece of each long row.
        piece_start: (P,) first entry of each piece.
        piece_end: (P,) one past the last entry of each piece.
    """

    mean_length: float
    starts: Tensor
    ends: Tensor
    order: Tensor | None
    long_rows: Tensor
    first_piece: Tensor
    piece_start: Tensor
    piece_end: Tensor


class SpmmTile(NamedTuple):
    """What a program works on at a time: rows, entries of each and columns; and its warps."""

    rows: int
    entries: int
    columns: int
    warps: int


@triton.jit
def _rows_kernel(  # type: ignore[no-untyped-def]
    starts,
    ends,
    order,
    col,
    values,
    dense,
    out,
    count,
    width,
    longest_allowed,
    column_blocks,
    batch_stride,
    row_stride,
    column_stride,
    out_batch_stride,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
    ORDERED: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Sum ROWS runs of entries over COLUMNS columns; a run longer than allowed is left at zero."""
    share = tl.program_id(0).to(tl.int64)
    batch = tl.program_id(1).to(tl.int64)
    lane = (share // column_blocks) * ROWS + tl.arange(0, ROWS)
    n = (share % column_blocks) * COLUMNS + tl.arange(0, COLUMNS)
    inside = lane < count
    row = tl.load(order + lane, mask=inside, other=0).to(tl.int64) if ORDERED else lane
    start = tl.load(starts + row, mask=inside, other=0).to(tl.int64)
    length = tl.load(ends + row, mask=inside, other=0).to(tl.int64) - start
    length = tl.where(length > longest_allowed, 0, length)
    source = dense + batch * batch_stride + n[None, None, :] * column_stride
    total = tl.zeros((ROWS, ENTRIES, COLUMNS), ACCUMULATOR)
    for first in range(0, tl.max(length, axis=0), ENTRIES):
        k = first + tl.arange(0, ENTRIES)
        stored = k[None, :] < length[:, None]
        position = start[:, None] + k[None, :]
        column = tl.load(col + position, mask=stored, other=0).to(tl.int64)
        value = tl.load(values + position, mask=stored, other=0.0).to(ACCUMULATOR)
        wanted = stored[:, :, None] & (n < width)[None, None, :]
        factor = tl.load(source + column[:, :, None] * row_stride, mask=wanted, other=0.0)
        total += value[:, :, None] * factor.to(ACCUMULATOR)
    result = tl.sum(total, axis=1)
    target = out + batch * out_batch_stride + row[:, None] * width + n[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=inside[:, None] & (n < width)[None, :])


@triton.jit
def _combine_kernel(  # type: ignore[no-untyped-def]
    partial,
    long_rows,
    first_piece,
    out,
    width,
    column_blocks,
    partial_batch_stride,
    out_batch_stride,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Add the pieces of one long row in their order."""
    share = tl.program_id(0).to(tl.int64)
    batch = tl.program_id(1).to(tl.int64)
    which = share // column_blocks
    n = (share % column_blocks) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(long_rows + which).to(tl.int64)
    total = tl.zeros((COLUMNS,), ACCUMULATOR)
    source = partial + batch * partial_batch_stride + n
    for piece in range(tl.load(first_piece + which), tl.load(first_piece + which + 1)):
        total += tl.load(source + piece * width, mask=n < width, other=0.0)
    target = out + batch * out_batch_stride + row * width + n
    tl.store(target, total.to(out.dtype.element_ty), mask=n < width)


def spmm(matrix: CSR, dense: Tensor) -> Tensor:
    """``matrix @ dense``, real, to the same bits every time; see :func:`sparse_core.linalg.spmm`."""
    dtype = torch.promote_types(matrix.dtype, dense.dtype)
    batched = dense if dense.ndim == 3 else dense[None]
    if batched.stride(2) != 1:
        batched = batched.contiguous()
    batch, _, width = batched.shape
    if batch > _BATCHES:
        return apart(spmm(matrix, side_by_side(dense)), dense)
    out = torch.empty(batch, matrix.shape[0], width, dtype=dtype, device=dense.device)
    if out.numel():
        plan = matrix.cached("linalg spmm rows", lambda: plan_rows(matrix.row_ptr))
        _multiply(matrix, batched, out, plan)
    return out if dense.ndim == 3 else out[0]


def plan_rows(row_ptr: Tensor) -> RowPlan:
    """Share out the rows of a (non-empty) CSR structure; reads sizes back to the host, so once only.

    Args:
        row_ptr: (M + 1,) integer.
    """
    lengths = row_ptr.diff().long()
    mean = int(row_ptr[-1]) / len(lengths)
    # Groups of 16 rows would take as many steps as their longest: worth sorting when that doubles the work.
    padded = torch.nn.functional.pad(lengths, (0, -len(lengths) % 16)).view(-1, 16)
    steps = int(padded.clamp(max=_PIECE).amax(dim=1).sum()) * 16
    order = (
        torch.sort(lengths, stable=True).indices.to(row_ptr.dtype)
        if steps > 2 * mean * len(lengths)
        else None
    )
    long_rows = (lengths > _PIECE).nonzero()[:, 0]
    return RowPlan(mean, row_ptr[:-1], row_ptr[1:], order, long_rows, *cut_rows(row_ptr, long_rows, _PIECE))


def choose_tile(mean_length: float, width: int) -> SpmmTile:
    """Tile for rows of this mean length: columns first, a few entries in flight, then rows.

    Measured on an H200 with 8, 64 and 256 columns: against a tile of 8 entries and 2 rows, one of 4 entries
    and 8 rows halves the time at 64 columns, because short rows fill it.
    """
    columns = min(256, triton.next_power_of_2(width))
    entries = 8 if columns <= 16 else 4 if columns <= 64 else 2
    entries = min(entries, max(2, triton.next_power_of_2(int(mean_length) + 1) // 2))
    rows = max(1, min(16, (2048 if columns <= 64 else 1024) // (columns * entries)))
    return SpmmTile(rows, entries, columns, 4 if rows * entries * columns >= 512 else 1)


def _multiply(matrix: CSR, dense: Tensor, out: Tensor, plan: RowPlan) -> None:
    batch, _, width = out.shape
    tile = choose_tile(plan.mean_length, width)
    order = plan.order if tile.rows > 1 else None
    _launch_rows(plan.starts, plan.ends, order, matrix, dense, out, tile)
    if len(plan.long_rows) == 0:
        return
    working = accumulation_dtype(out.dtype)
    partial = scratch((batch, len(plan.piece_start), width), working, out.device)
    long_tile = choose_tile(_PIECE, width)._replace(rows=1)
    _launch_rows(plan.piece_start, plan.piece_end, None, matrix, dense, partial, long_tile)
    column_blocks = triton.cdiv(width, tile.columns)
    _launch(
        _combine_kernel,
        (len(plan.long_rows) * column_blocks, batch),
        partial,
        plan.long_rows,
        plan.first_piece,
        out,
        width,
        column_blocks,
        partial.stride(0),
        out.stride(0),
        COLUMNS=tile.columns,
        ACCUMULATOR=_triton_dtype(working),
    )


def _launch_rows(
    starts: Tensor,
    ends: Tensor,
    order: Tensor | None,
    matrix: CSR,
    dense: Tensor,
    out: Tensor,
    tile: SpmmTile,
) -> None:
    batch, count, width = out.shape
    column_blocks = triton.cdiv(width, tile.columns)
    _launch(
        _rows_kernel,
        (triton.cdiv(count, tile.rows) * column_blocks, batch),
        starts,
        ends,
        starts if order is None else order,
        matrix.col,
        matrix.values,
        dense,
        out,
        count,
        width,
        _PIECE,
        column_blocks,
        *dense.stride(),
        out.stride(0),
        ROWS=tile.rows,
        ENTRIES=tile.entries,
        COLUMNS=tile.columns,
        ORDERED=order is not None,
        ACCUMULATOR=_triton_dtype(accumulation_dtype(out.dtype)),
        num_warps=tile.warps,
    )


def _triton_dtype(dtype: torch.dtype) -> Any:
    return tl.float64 if dtype == torch.float64 else tl.float32
