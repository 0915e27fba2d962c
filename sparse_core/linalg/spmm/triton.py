"""Sparse matrix times dense matrix in Triton: several short rows, or one long row, per program.

A program sums a run of entries, or some short ones, over a block of columns. A run is a row or a piece of a
long row (:func:`choose_piece`). A second launch adds the pieces in a fixed order, without atomics, so results
are bitwise reproducible. Runs on CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.kernels.launches import launch as _launch
from sparse_core.kernels.launches import scratch
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.spmm.common import apart, side_by_side
from sparse_core.linalg.structure import cut_rows

#: Most entries of a row that one program sums.
_PIECE = 1024
#: Most columns for which pieces of ``_PIECE`` keep enough entries in flight.
_FEW_COLUMNS = 64
#: Longest rows that share a program; a program takes as long as its longest row.
_SHORT = 64
#: Most entries in flight per program, and most numbers (of products as well as pieces); half as many numbers
#: for many columns.
_ENTRIES, _NUMBERS = 128, 2048
#: Most batches per launch: the second dimension of a CUDA grid.
_BATCHES = 65535


class RunPlan(NamedTuple):
    """Runs of the entries of a matrix; depends only on the structure.

    Attributes:
        starts, ends: (R,) first entry of each run, and one past its last: pieces of long rows, then rows by
            descending length, then short rows.
        row: (R,) the run's row, 0 for pieces; None when the runs are the rows in their order.
        pieces: number of runs that are pieces.
        long: number of runs that are pieces or long rows.
        mean_length: mean entries of a short row.
        cut_rows: (L,) rows that are cut into pieces.
        first_piece: (L + 1,) first piece of each of them.
    """

    starts: Tensor
    ends: Tensor
    row: Tensor | None
    pieces: int
    long: int
    mean_length: float
    cut_rows: Tensor
    first_piece: Tensor


class SpmmTile(NamedTuple):
    """Tile of a program: short rows and entries of each, entries of a long row, columns, warps."""

    rows: int
    entries: int
    long_entries: int
    columns: int
    warps: int


@triton.jit
def _sum_runs(  # type: ignore[no-untyped-def]
    starts,
    ends,
    rows,
    col,
    values,
    dense,
    out,
    partial,
    first,
    end,
    pieces,
    width,
    n,
    row_stride,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
    ORDERED: tl.constexpr,
    CUT: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Sum ROWS runs from ``first`` on over the columns ``n``: rows to ``out``, pieces to ``partial``."""
    run = first + tl.arange(0, ROWS).to(tl.int64)
    inside = run < end
    start = tl.load(starts + run, mask=inside, other=0).to(tl.int64)
    length = tl.load(ends + run, mask=inside, other=0).to(tl.int64) - start
    total = tl.zeros((ROWS, ENTRIES, COLUMNS), ACCUMULATOR)
    for begin in range(0, tl.max(length, axis=0), ENTRIES):
        k = begin + tl.arange(0, ENTRIES)
        stored = k[None, :] < length[:, None]
        position = start[:, None] + k[None, :]
        column = tl.load(col + position, mask=stored, other=0).to(tl.int64)
        value = tl.load(values + position, mask=stored, other=0.0).to(ACCUMULATOR)
        wanted = stored[:, :, None] & (n < width)[None, None, :]
        factor = tl.load(dense + n[None, None, :] + column[:, :, None] * row_stride, mask=wanted, other=0.0)
        total += value[:, :, None] * factor.to(ACCUMULATOR)
    result = tl.sum(total, axis=1)
    row = tl.load(rows + run, mask=inside, other=0).to(tl.int64) if ORDERED else run
    wanted = inside[:, None] & (n < width)[None, :]
    if CUT:
        tl.store(partial + run[:, None] * width + n[None, :], result, mask=wanted & (run < pieces)[:, None])
        wanted = wanted & (run >= pieces)[:, None]
    tl.store(out + row[:, None] * width + n[None, :], result.to(out.dtype.element_ty), mask=wanted)


@triton.jit
def _runs_kernel(  # type: ignore[no-untyped-def]
    starts,
    ends,
    rows,
    col,
    values,
    dense,
    out,
    partial,
    count,
    long,
    pieces,
    width,
    column_blocks,
    batch_stride,
    row_stride,
    out_batch_stride,
    partial_batch_stride,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    LONG_ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
    LONG: tl.constexpr,
    SHORT: tl.constexpr,
    ORDERED: tl.constexpr,
    CUT: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """The first programs have a long run each (``LONG``), all others ROWS short ones (``SHORT``)."""
    share = tl.program_id(0).to(tl.int64)
    batch = tl.program_id(1).to(tl.int64)
    block = share // column_blocks
    n = (share % column_blocks) * COLUMNS + tl.arange(0, COLUMNS)
    source = dense + batch * batch_stride
    target = out + batch * out_batch_stride
    parts = partial + batch * partial_batch_stride
    is_long = block < long
    # Nested: what is known when it is compiled leaves the other half out.
    if LONG:  # noqa: SIM102
        if is_long:
            _sum_runs(
                starts, ends, rows, col, values, source, target, parts,
                block, long, pieces, width, n, row_stride,
                1, LONG_ENTRIES, COLUMNS, ORDERED, CUT, ACCUMULATOR,
            )  # fmt: skip
    if SHORT:  # noqa: SIM102
        if not is_long:
            _sum_runs(
                starts, ends, rows, col, values, source, target, parts,
                long + (block - long) * ROWS, count, pieces, width, n, row_stride,
                ROWS, ENTRIES, COLUMNS, ORDERED, False, ACCUMULATOR,
            )  # fmt: skip


@triton.jit
def _join_kernel(  # type: ignore[no-untyped-def]
    partial,
    cut_rows,
    first_piece,
    out,
    width,
    column_blocks,
    partial_batch_stride,
    out_batch_stride,
    PIECES: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """Add the pieces of one row in an order of their own, PIECES at a time."""
    share = tl.program_id(0).to(tl.int64)
    batch = tl.program_id(1).to(tl.int64)
    which = share // column_blocks
    n = (share % column_blocks) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(cut_rows + which).to(tl.int64)
    end = tl.load(first_piece + which + 1)
    total = tl.zeros((PIECES, COLUMNS), ACCUMULATOR)
    for begin in range(tl.load(first_piece + which), end, PIECES):
        piece = begin + tl.arange(0, PIECES)
        source = partial + batch * partial_batch_stride + piece[:, None] * width + n[None, :]
        total += tl.load(source, mask=(piece < end)[:, None] & (n < width)[None, :], other=0.0)
    target = out + batch * out_batch_stride + row * width + n
    tl.store(target, tl.sum(total, axis=0).to(out.dtype.element_ty), mask=n < width)


def spmm(matrix: CSR, dense: Tensor) -> Tensor:
    """Return real ``matrix @ dense``, bitwise reproducibly."""
    dtype = torch.promote_types(matrix.dtype, dense.dtype)
    batched = dense if dense.ndim == 3 else dense[None]
    if batched.stride(2) != 1:
        batched = batched.contiguous()
    batch, _, width = batched.shape
    if batch > _BATCHES:
        return apart(spmm(matrix, side_by_side(dense)), dense)
    out = torch.empty(batch, matrix.shape[0], width, dtype=dtype, device=dense.device)
    if out.numel():
        piece = choose_piece(len(matrix.col) / matrix.shape[0], width)
        plan = matrix.cached(f"linalg spmm runs {piece}", lambda: plan_runs(matrix.row_ptr, piece))
        _multiply(matrix, batched, out, plan)
    return out if dense.ndim == 3 else out[0]


def choose_piece(mean_length: float, width: int) -> int:
    """Return the most entries of a row per program: fewer for many columns, but at least a usual row.

    With many columns a program has few entries in flight, and all programs wait for the last row.
    """
    if width <= _FEW_COLUMNS:
        return _PIECE
    usual: int = triton.next_power_of_2(math.ceil(mean_length))
    return min(_PIECE, max(_PIECE // 4, usual))


def plan_runs(row_ptr: Tensor, piece: int) -> RunPlan:
    """Split the entries of a non-empty CSR structure into runs of at most ``piece``; reads the device."""
    lengths = row_ptr.diff().long()
    too_long = (lengths > piece).nonzero()[:, 0]
    first_piece, piece_start, piece_end = cut_rows(row_ptr, too_long, piece)
    long_rows = ((lengths > _SHORT) & (lengths <= piece)).nonzero()[:, 0]
    short_rows = (lengths <= _SHORT).nonzero()[:, 0]
    short_lengths = lengths[short_rows]
    short_entries = int(short_lengths.sum())
    # A group of 16 rows takes as many steps as its longest row. Sort rows if that doubles the work.
    padded = torch.nn.functional.pad(short_lengths, (0, -len(short_rows) % 16)).view(-1, 16)
    if 16 * int(padded.amax(dim=1).sum()) > 2 * short_entries:
        short_rows = short_rows[_from_the_longest(short_lengths)]
    # The longest rows start first.
    row = torch.cat([long_rows[_from_the_longest(lengths[long_rows])], short_rows])
    dtype, pieces = row_ptr.dtype, len(piece_start)
    in_order = pieces == 0 and bool((row[1:] > row[:-1]).all())
    return RunPlan(
        torch.cat([piece_start.to(dtype), row_ptr[:-1][row]]),
        torch.cat([piece_end.to(dtype), row_ptr[1:][row]]),
        None if in_order else torch.nn.functional.pad(row.to(dtype), (pieces, 0)),
        pieces,
        pieces + len(long_rows),
        short_entries / max(1, len(short_rows)),
        too_long,
        first_piece,
    )


def _from_the_longest(lengths: Tensor) -> Tensor:
    return torch.sort(lengths, descending=True, stable=True).indices


def choose_tile(mean_length: float, width: int) -> SpmmTile:
    """Return the tile for short rows of this mean length.

    Measured on an H200 with 8 to 256 columns. Short rows fill a tile of 4 entries and 8 rows; at 64 columns
    it takes half the time of 8 entries and 2 rows. Long rows are fastest one at a time, with as many entries
    as the registers hold.
    """
    columns = min(256, triton.next_power_of_2(width))
    numbers = _NUMBERS if columns <= _FEW_COLUMNS else _NUMBERS // 2
    entries = 8 if columns <= 16 else 4 if columns <= _FEW_COLUMNS else 2
    entries = min(entries, max(2, triton.next_power_of_2(int(mean_length) + 1) // 2))
    rows = max(1, min(16, numbers // (columns * entries)))
    return SpmmTile(
        rows, entries, min(_ENTRIES, numbers // columns), columns, 4 if rows * entries * columns >= 512 else 1
    )


def _multiply(matrix: CSR, dense: Tensor, out: Tensor, plan: RunPlan) -> None:
    batch, _, width = out.shape
    tile = choose_tile(plan.mean_length, width)
    column_blocks = triton.cdiv(width, tile.columns)
    count = len(plan.starts)
    short_programs = triton.cdiv(count - plan.long, tile.rows)
    working = accumulation_dtype(out.dtype)
    # An unused argument must not change between calls, because launch plans replace changed addresses.
    partial = plan.starts
    if plan.pieces:
        partial = scratch((batch, plan.pieces, width), working, out.device)
    _launch(
        _runs_kernel,
        ((plan.long + short_programs) * column_blocks, batch),
        plan.starts,
        plan.ends,
        plan.starts if plan.row is None else plan.row,
        matrix.col,
        matrix.values,
        dense,
        out,
        partial,
        count,
        plan.long,
        plan.pieces,
        width,
        column_blocks,
        dense.stride(0),
        dense.stride(1),
        out.stride(0),
        partial.stride(0),
        ROWS=tile.rows,
        ENTRIES=tile.entries,
        LONG_ENTRIES=tile.long_entries,
        COLUMNS=tile.columns,
        LONG=plan.long > 0,
        SHORT=short_programs > 0,
        ORDERED=plan.row is not None,
        CUT=plan.pieces > 0,
        ACCUMULATOR=_triton_dtype(working),
        num_warps=4 if plan.long else tile.warps,
    )
    if plan.pieces == 0:
        return
    _launch(
        _join_kernel,
        (len(plan.cut_rows) * column_blocks, batch),
        partial,
        plan.cut_rows,
        plan.first_piece,
        out,
        width,
        column_blocks,
        partial.stride(0),
        out.stride(0),
        PIECES=max(1, _NUMBERS // tile.columns),
        COLUMNS=tile.columns,
        ACCUMULATOR=_triton_dtype(working),
        num_warps=4,
    )


def _triton_dtype(dtype: torch.dtype) -> Any:
    return tl.float64 if dtype == torch.float64 else tl.float32
