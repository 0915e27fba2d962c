"""Assembly in Triton: move entries to their rows, then sort every row in registers.

A counting pass with atomics finds each row's length and an arbitrary place in it for every entry. Each entry
is 64 bits, its column above its input position, so sorting a row gives one order whatever the atomics did.
Rows are listed by length, with a bin per power of two. The first pass detects sorted input, for which the
other passes have nothing to do.

The host waits once for the number of entries to store, and twice if a row exceeds the widest bin; torch sorts
such rows. For few entries one torch sort replaces all passes, because launches would cost more. Runs on
CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats.assemble.common import PIECE, Assembly, sum_dtype, sum_runs
from sparse_core.formats.assemble.kernels_triton import (
    BIN,
    TALL,
    count_kernel,
    finish_kernel,
    heads_kernel,
    inspect_kernel,
    list_kernel,
    scatter_kernel,
    sort_kernel,
)

#: Most entries for one sort of linear keys; with fewer, launching the passes takes longer than running them.
_FEW = 1 << 19
#: Entries or rows per program of kernels without tiles. With twice as many, the last kernel takes 100
#: registers a thread and half the warps fit.
_BLOCK = 512
#: Entries of a sorted tile, rows times width.
_TILE = 1024
#: Rows of up to 8, 16, ... 1024 entries are sorted in registers.
_FIRST_WIDTH = 8
_BINS = 8
#: Programs of the sorting kernel; each loops over tiles, because only the device knows their number.
_PROGRAMS = 4096

_TRITON_DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


class _SortedEntries(NamedTuple):
    """Entries in order.

    Attributes:
        packed: (N,) int64, column above position; None if the input is sorted.
        begins: (N,) int8, 1 where a row begins; None likewise.
        row_ptr: (rows + 1,) int32, start of each row among the entries.
        base: (blocks + 1,) int32, cells that start before each block of entries.
        cells: number of distinct cells.
        tall: True if a cell may have more than ``PIECE`` entries.
    """

    packed: Tensor | None
    begins: Tensor | None
    row_ptr: Tensor
    base: Tensor
    cells: int
    tall: bool


def assemble(
    row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], *, target: bool
) -> Assembly | None:
    """Sort by (row, col) and sum the entries of each cell; None if an index lies outside the matrix.

    Args:
        row, col: (N,) int32 or int64, contiguous, N from 1 to 2^31 - 2.
        values: (N,) floating or complex, contiguous.
        shape: rows and columns, at most 2^31 - 2.
        target: also return the cell of each entry.
    """
    if 0 in shape:
        return None
    if len(row) <= _FEW:
        return _assemble_few(row, col, values, shape, target=target)
    ordered = _sort(row, col, shape)
    if ordered is None:
        return None
    if ordered.packed is None and ordered.cells == len(row):
        went = torch.arange(len(row), dtype=torch.int32, device=row.device) if target else None
        return Assembly(ordered.row_ptr.to(col.dtype), col.clone(), values.clone(), went)
    return _finish(row, col, values, ordered, target=target)


def _assemble_few(
    row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], *, target: bool
) -> Assembly | None:
    """Assemble by one sort of linear keys: few launches, one read-back."""
    # Narrow keys sort in half the time. Indices outside the matrix may wrap; the first pass detects them.
    key_dtype = torch.int32 if shape[0] * shape[1] < 2**31 else torch.int64
    keys = torch.add(col.to(key_dtype), row.to(key_dtype), alpha=shape[1])
    order = torch.sort(keys, stable=True).indices
    row, col, values = (part.index_select(0, order) for part in (row, col, values))
    stats, heads = _inspect(row, col, shape)
    row_ptr, base = _row_ptr(row, shape[0]), heads.cumsum(0, dtype=torch.int32)
    _unsorted, outside, tall, cells, *_ = stats.tolist()
    if outside:
        return None
    if cells == len(row):
        went = torch.arange(cells, device=row.device) if target else None
        made = Assembly(row_ptr.to(col.dtype), col, values, went)
    else:
        ordered = _SortedEntries(None, None, row_ptr, base, cells, bool(tall))
        made = _finish(row, col, values, ordered, target=target)
    if made.target is None:
        return made
    return made._replace(target=torch.empty_like(made.target).index_copy_(0, order, made.target))


def _inspect(row: Tensor, col: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Run the first pass; return the kernels' statistics and the cells of each block."""
    count, device = len(row), row.device
    blocks = triton.cdiv(count, _BLOCK)
    stats = torch.zeros(BIN.value + _BINS, dtype=torch.int32, device=device)
    heads = torch.empty(blocks + 1, dtype=torch.int32, device=device)
    _launch(inspect_kernel, blocks, row, col, stats, heads, count, *shape, PROBE=PIECE // 2)
    return stats, heads


def _row_ptr(row: Tensor, rows: int) -> Tensor:
    """Return the start of each row among sorted entries."""
    return torch.searchsorted(row, torch.arange(rows + 1, dtype=row.dtype, device=row.device), out_int32=True)


def _sort(row: Tensor, col: Tensor, shape: tuple[int, int]) -> _SortedEntries | None:
    count, (rows, cols), device = len(row), shape, row.device
    blocks = triton.cdiv(count, _BLOCK)
    stats, heads_if_sorted = _inspect(row, col, shape)

    place = torch.empty(count, dtype=torch.int32, device=device)
    lengths = torch.zeros(rows + 1, dtype=torch.int32, device=device)
    _launch(count_kernel, blocks, row, place, lengths, stats, count, rows)
    row_ptr = lengths.cumsum(0, dtype=torch.int32)
    packed = torch.empty(count, dtype=torch.int64, device=device)
    _launch(scatter_kernel, blocks, row, col, place, row_ptr, packed, stats, count, rows, cols)
    begins = _sort_rows(packed, row_ptr, stats, count, rows)
    base = _base(row, packed, begins, row_ptr, stats)

    unsorted, outside, tall_if_sorted, cells_if_sorted, tall, cells, long, *_ = stats.tolist()
    if outside:
        return None
    if not unsorted:
        base = heads_if_sorted.cumsum(0, dtype=torch.int32)
        return _SortedEntries(None, None, _row_ptr(row, rows), base, cells_if_sorted, bool(tall_if_sorted))
    if long:
        _sort_long_rows(packed, row_ptr)
        base = _base(row, packed, begins, row_ptr, stats)
        tall, cells = torch.stack([stats[TALL.value], base[-1]]).tolist()
    return _SortedEntries(packed, begins, row_ptr, base, cells, bool(tall))


def _sort_rows(packed: Tensor, row_ptr: Tensor, stats: Tensor, count: int, rows: int) -> Tensor:
    """Sort the rows that fit a kernel; return flags of row starts."""
    widths = [_FIRST_WIDTH << bin_ for bin_ in range(_BINS)]
    # A row of a bin has more entries than the width of the bin before, which bounds the number of rows.
    capacities = [rows, *(min(rows, count // (width + 1)) for width in widths[:-1])]
    lists = torch.empty(sum(capacities), dtype=torch.int32, device=packed.device)
    begins = torch.zeros(count, dtype=torch.int8, device=packed.device)
    bins = {"FIRST": _FIRST_WIDTH, "BINS": _BINS}
    _launch(list_kernel, triton.cdiv(rows, _BLOCK), row_ptr, lists, begins, stats, count, rows, **bins)
    tiles = [
        triton.cdiv(capacity, max(1, _TILE // width))
        for width, capacity in zip(widths, capacities, strict=True)
    ]
    programs = min(max(tiles), _PROGRAMS)
    sort_kernel[(programs,)](packed, row_ptr, lists, stats, count, rows, TILE=_TILE, **bins)
    return begins


def _base(row: Tensor, packed: Tensor, begins: Tensor, row_ptr: Tensor, stats: Tensor) -> Tensor:
    """Return the cells that start before each block of the sorted entries."""
    blocks = triton.cdiv(len(row), _BLOCK)
    heads = torch.empty(blocks + 1, dtype=torch.int32, device=row.device)
    rows = len(row_ptr) - 1
    _launch(heads_kernel, blocks, packed, begins, row, row_ptr, stats, heads, rows, PROBE=PIECE // 2)
    return heads.cumsum(0, dtype=torch.int32)


def _sort_long_rows(packed: Tensor, row_ptr: Tensor) -> None:
    """Sort the rows that are too long for the kernels, in place."""
    lengths = row_ptr.diff().long()
    long = (lengths > _FIRST_WIDTH << (_BINS - 1)).nonzero()[:, 0]
    of_entry = torch.repeat_interleave(torch.arange(len(long), device=long.device), lengths[long])
    first = lengths[long].cumsum(0) - lengths[long]
    within = torch.arange(len(of_entry), device=long.device) - first[of_entry]
    where = row_ptr[long].long()[of_entry] + within
    keys, order = torch.sort(packed[where])
    packed[where] = keys[torch.sort(of_entry[order], stable=True).indices]


def _finish(row: Tensor, col: Tensor, values: Tensor, ordered: _SortedEntries, *, target: bool) -> Assembly:
    count, device = len(row), row.device
    out_col = torch.empty(ordered.cells, dtype=col.dtype, device=device)
    # torch rounds half types afterwards, the same way on every device.
    out_values = torch.empty(ordered.cells, dtype=sum_dtype(values.dtype), device=device)
    out_begins = torch.empty(count + 1, dtype=torch.int32, device=device)
    # Very many entries of one cell would keep a single lane busy; sum_runs adds those.
    wanted = target or ordered.tall
    went = torch.empty(count if wanted else 0, dtype=torch.int32, device=device)
    packed = row if ordered.packed is None else ordered.packed
    begins = row if ordered.begins is None else ordered.begins
    choices = {"SORTED": ordered.packed is None, "ADD": not ordered.tall, "TARGET": wanted}
    for part, out in _real_parts(values, out_values):
        inputs = (row, col, packed, begins, part, ordered.base)
        outputs = (out_col, out, out_begins, went)
        types = {"STRIDE": part.stride(0), "SUM": _TRITON_DTYPES[out.dtype]}
        _launch(finish_kernel, triton.cdiv(count + 1, _BLOCK), *inputs, *outputs, count, **choices, **types)
    if ordered.tall:
        order = torch.arange(count, device=device) if ordered.packed is None else packed & 0xFFFFFFFF
        out_values = _sum_cells(values[order], went[order])
    row_ptr = ordered.row_ptr
    if ordered.cells < count:
        row_ptr = out_begins[row_ptr]
    summed = out_values.to(values.dtype)
    return Assembly(row_ptr.to(col.dtype), out_col, summed, went if target else None)


def _sum_cells(values: Tensor, cell: Tensor) -> Tensor:
    """Sum values (N,) that are sorted by their cells (N,)."""
    starts = torch.cat([cell.new_zeros(1, dtype=torch.int64), cell.diff().nonzero()[:, 0] + 1])
    return sum_runs(values.to(sum_dtype(values.dtype)), starts)


def _real_parts(values: Tensor, out: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return values and sums, complex ones as real and imaginary views."""
    if not values.is_complex():
        return [(values, out)]
    return list(zip(torch.view_as_real(values).unbind(1), torch.view_as_real(out).unbind(1), strict=True))


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    kernel[(programs,)](*arguments, BLOCK=_BLOCK, **constants)
