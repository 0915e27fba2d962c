"""Assembly in Triton: entries go to their rows first, then every row is sorted in registers.

A counting pass with atomics finds each row's length and a place in it for every entry; the places are in no
particular order. Each entry travels as 64 bits, its column above its position in the input, so sorting a row
restores one order whatever the atomics did. Rows are listed by length, one kernel for each power of two.
Entries that come sorted are noticed in the first pass, and the rest of the work then finds nothing to do.

The host waits once, for the number of entries to store (twice if a row exceeds the widest kernel; those rows
go through torch's sort). Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.formats.assemble.common import PIECE, Assembly, sum_dtype, sum_runs

#: Entries or rows for each program of the kernels without tiles.
_BLOCK = 1024
#: Entries of a sorted tile, rows times width.
_TILE = 1024
#: Rows of up to 8, 16, ... 1024 entries are sorted in registers.
_FIRST_WIDTH = 8
_BINS = 8
#: Programs of a sorting kernel; each takes tiles until none is left, as only the device knows their number.
_PROGRAMS = 4096

# What the kernels leave in `stats`: three flags of the first pass, a flag and a counter of the later ones,
# then the number of rows in each bin.
_UNSORTED = tl.constexpr(0)
_OUTSIDE = tl.constexpr(1)
_TALL_IF_SORTED = tl.constexpr(2)
_TALL = tl.constexpr(3)
_LONG = tl.constexpr(4)
_BIN = tl.constexpr(5)

_TRITON_DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@triton.jit
def _inspect_kernel(  # type: ignore[no-untyped-def]
    row,
    col,
    stats,
    heads,
    count,
    rows,
    cols,
    PROBE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Is everything sorted, is everything inside, and how many cells start here if it is sorted."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count
    second = inside & (lane > 0)
    r = tl.load(row + lane, mask=inside, other=0).to(tl.int64)
    c = tl.load(col + lane, mask=inside, other=0).to(tl.int64)
    r_before = tl.load(row + lane - 1, mask=second, other=0).to(tl.int64)
    c_before = tl.load(col + lane - 1, mask=second, other=0).to(tl.int64)
    descends = second & ((r < r_before) | ((r == r_before) & (c < c_before)))
    outside = inside & ((r < 0) | (r >= rows) | (c < 0) | (c >= cols))
    # Among more than PIECE equal neighbours there is a multiple of PIECE / 2 that equals the next multiple.
    probe = inside & (lane % PROBE == 0) & (lane + PROBE < count)
    r_later = tl.load(row + lane + PROBE, mask=probe, other=-1).to(tl.int64)
    c_later = tl.load(col + lane + PROBE, mask=probe, other=-1).to(tl.int64)
    tall = probe & (r == r_later) & (c == c_later)
    tl.store(stats + _UNSORTED, 1, mask=tl.sum(descends.to(tl.int32), axis=0) > 0)
    tl.store(stats + _OUTSIDE, 1, mask=tl.sum(outside.to(tl.int32), axis=0) > 0)
    tl.store(stats + _TALL_IF_SORTED, 1, mask=tl.sum(tall.to(tl.int32), axis=0) > 0)
    head = inside & ((lane == 0) | (r != r_before) | (c != c_before))
    tl.store(heads + tl.program_id(0), tl.sum(head.to(tl.int32), axis=0))


@triton.jit
def _count_kernel(  # type: ignore[no-untyped-def]
    row,
    place,
    lengths,
    stats,
    count,
    rows,
    BLOCK: tl.constexpr,
):
    """Count each row's entries; what the counter held is the entry's place within its row."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count * tl.load(stats + _UNSORTED)
    r = tl.load(row + lane, mask=inside, other=0).to(tl.int64)
    inside = inside & (r >= 0) & (r < rows)
    found = tl.atomic_add(lengths + tl.where(inside, r, 0), 1, mask=inside, sem="relaxed")
    tl.store(place + lane, found, mask=inside)


@triton.jit
def _list_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    lists,
    begins,
    stats,
    count,
    rows,
    FIRST: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """List the rows of every bin, flag where rows begin, add up the entries of rows too long for a bin."""
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = r < rows
    begin = tl.load(row_ptr + r, mask=inside, other=0)
    length = tl.load(row_ptr + r + 1, mask=inside, other=0) - begin
    tl.store(begins + begin, 1, mask=length > 0)
    offset = 0
    for b in tl.static_range(BINS):
        low = (FIRST << b) // 2 if b > 0 else 0
        mine = (length > low) & (length <= (FIRST << b))
        number = tl.sum(mine.to(tl.int32), axis=0)
        slot = tl.atomic_add(stats + _BIN + b, number, sem="relaxed")
        rank = tl.cumsum(mine.to(tl.int32), axis=0) - 1
        tl.store(lists + offset + slot + rank, r.to(tl.int32), mask=mine)
        # Rows longer than `low` are at most this many; the host reserves as much.
        offset += tl.minimum(rows, count // (low + 1)).to(tl.int64)
    long = tl.where(length > (FIRST << (BINS - 1)), length, 0)
    tl.atomic_add(stats + _LONG, tl.sum(long, axis=0), sem="relaxed")


@triton.jit
def _scatter_kernel(  # type: ignore[no-untyped-def]
    row,
    col,
    place,
    row_ptr,
    packed,
    stats,
    count,
    rows,
    cols,
    BLOCK: tl.constexpr,
):
    """Write each entry, column above position, to its place in its row."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count * tl.load(stats + _UNSORTED)
    r = tl.load(row + lane, mask=inside, other=-1).to(tl.int64)
    c = tl.load(col + lane, mask=inside, other=0).to(tl.int64)
    inside = inside & (r >= 0) & (r < rows)
    start = tl.load(row_ptr + r, mask=inside, other=0).to(tl.int64)
    slot = start + tl.load(place + lane, mask=inside, other=0)
    tl.store(packed + slot, (c << 32) | lane, mask=inside)


@triton.jit
def _sort_kernel(  # type: ignore[no-untyped-def]
    packed,
    row_ptr,
    listed,
    number,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sort the listed rows, a tile of ROWS rows at a time, in place."""
    rows = tl.load(number)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        entry = tile * ROWS + tl.arange(0, ROWS)
        live = entry < rows
        r = tl.load(listed + entry, mask=live, other=0)
        start = tl.load(row_ptr + r, mask=live, other=0)
        length = tl.load(row_ptr + r + 1, mask=live, other=0) - start
        slot = tl.arange(0, WIDTH)
        where = start[:, None].to(tl.int64) + slot[None, :]
        stored = slot[None, :] < length[:, None]
        key = tl.load(packed + where, mask=stored, other=0x7FFFFFFFFFFFFFFF)
        tl.store(packed + where, tl.sort(key), mask=stored)


@triton.jit
def _heads_kernel(  # type: ignore[no-untyped-def]
    packed,
    begins,
    row,
    row_ptr,
    stats,
    heads,
    rows,
    PROBE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How many cells start in each block of the sorted entries, and whether one holds very many of them."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # Entries outside the matrix have no place; what lies beyond the others was never written.
    count = tl.load(row_ptr + rows)
    inside = lane < count
    key = tl.load(packed + lane, mask=inside, other=0)
    before = tl.load(packed + lane - 1, mask=inside & (lane > 0), other=-1)
    begin = tl.load(begins + lane, mask=inside, other=0)
    head = inside & ((begin != 0) | ((key >> 32) != (before >> 32)))
    tl.store(heads + tl.program_id(0), tl.sum(head.to(tl.int32), axis=0))
    probe = inside & (lane % PROBE == 0) & (lane + PROBE < count)
    later = tl.load(packed + lane + PROBE, mask=probe, other=-1)
    probe = probe & ((key >> 32) == (later >> 32))
    r = tl.load(row + (key & 0xFFFFFFFF), mask=probe, other=0)
    r_later = tl.load(row + (later & 0xFFFFFFFF), mask=probe, other=1)
    tall = probe & (r == r_later)
    tl.store(stats + _TALL, 1, mask=tl.sum(tall.to(tl.int32), axis=0) > 0)


@triton.jit
def _finish_kernel(  # type: ignore[no-untyped-def]
    row,
    col,
    packed,
    begins,
    values,
    base,
    out_col,
    out_values,
    out_begins,
    target,
    count,
    SORTED: tl.constexpr,
    ADD: tl.constexpr,
    TARGET: tl.constexpr,
    STRIDE: tl.constexpr,
    SUM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give every cell its slot; the lane of its first entry adds up the others, in order."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count
    second = inside & (lane > 0)
    if SORTED:
        r = tl.load(row + lane, mask=inside, other=0)
        c = tl.load(col + lane, mask=inside, other=0)
        begin = inside & ((lane == 0) | (r != tl.load(row + lane - 1, mask=second, other=0)))
        head = begin | (inside & (c != tl.load(col + lane - 1, mask=second, other=0)))
        position = lane
    else:
        key = tl.load(packed + lane, mask=inside, other=0)
        c = key >> 32
        position = key & 0xFFFFFFFF
        begin = inside & (tl.load(begins + lane, mask=inside, other=0) != 0)
        head = begin | (inside & (c != (tl.load(packed + lane - 1, mask=second, other=0) >> 32)))
    cell = tl.load(base + tl.program_id(0)) + tl.cumsum(head.to(tl.int32), axis=0) - 1
    if TARGET:
        tl.store(target + position, cell, mask=inside)
    tl.store(out_col + cell, c.to(out_col.dtype.element_ty), mask=head)
    tl.store(out_begins + lane, cell, mask=begin)
    total = tl.load(values + position * STRIDE, mask=head, other=0).to(SUM)
    active = head & ADD
    later = lane
    while tl.max(active.to(tl.int32), axis=0) > 0:
        later += 1
        active = active & (later < count)
        if SORTED:
            same_row = tl.load(row + later, mask=active, other=0) == r
            active = active & same_row & (tl.load(col + later, mask=active, other=0) == c)
            position = later
        else:
            key = tl.load(packed + later, mask=active, other=0)
            active = active & ((key >> 32) == c) & (tl.load(begins + later, mask=active, other=1) == 0)
            position = key & 0xFFFFFFFF
        value = tl.load(values + position * STRIDE, mask=active, other=0).to(SUM)
        total = tl.where(active, total + value, total)
    tl.store(out_values + cell.to(tl.int64) * STRIDE, total, mask=head)


class _Sorted(NamedTuple):
    """Entries in order.

    Attributes:
        packed: (N,) int64, column above position; None where the input is sorted already.
        begins: (N,) int8, 1 where a row begins; None likewise.
        row_ptr: (rows + 1,) int32, where each row begins among the entries.
        heads: (blocks,) int32, cells that start in each block.
        cells: number of distinct cells.
        tall: whether a cell may have more than ``PIECE`` entries.
    """

    packed: Tensor | None
    begins: Tensor | None
    row_ptr: Tensor
    heads: Tensor
    cells: int
    tall: bool


def check_runnable(tensor: Tensor) -> None:
    """Raise ``ImplementationError`` unless Triton can work on this tensor."""
    # TRITON_INTERPRET is read when a kernel is defined; asking the kernel tells what it was then.
    if not tensor.is_cuda and isinstance(_inspect_kernel, triton.JITFunction):
        raise ImplementationError(
            f"impl='triton' needs CUDA tensors, got {tensor.device}"
            " (TRITON_INTERPRET=1 in the environment runs it on a CPU)"
        )


def assemble(
    row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], *, target: bool
) -> Assembly | None:
    """Sort by (row, col) and sum the entries of each cell; None if an index lies outside the matrix.

    Args:
        row, col: (N,) int32 or int64, contiguous, N from 1 to 2^31 - 2.
        values: (N,) floating or complex, contiguous.
        shape: rows and columns, at most 2^31 - 2.
        target: whether to return where each entry went.
    """
    if 0 in shape:
        return None
    ordered = _sort(row, col, shape)
    if ordered is None:
        return None
    if ordered.packed is None and ordered.cells == len(row):
        went = torch.arange(len(row), dtype=torch.int32, device=row.device) if target else None
        return Assembly(ordered.row_ptr.to(col.dtype), col.clone(), values.clone(), went)
    return _finish(row, col, values, ordered, target=target)


def _sort(row: Tensor, col: Tensor, shape: tuple[int, int]) -> _Sorted | None:
    count, (rows, cols), device = len(row), shape, row.device
    blocks = triton.cdiv(count, _BLOCK)
    stats = torch.zeros(_BIN.value + _BINS, dtype=torch.int32, device=device)
    heads = torch.zeros(2, blocks, dtype=torch.int32, device=device)
    probe = {"PROBE": PIECE // 2}
    _launch(_inspect_kernel, blocks, row, col, stats, heads[0], count, rows, cols, **probe)

    place = torch.empty(count, dtype=torch.int32, device=device)
    row_ptr = torch.zeros(rows + 1, dtype=torch.int32, device=device)
    lengths = torch.zeros(rows, dtype=torch.int32, device=device)
    _launch(_count_kernel, blocks, row, place, lengths, stats, count, rows)
    torch.cumsum(lengths, 0, out=row_ptr[1:])
    packed = torch.empty(count, dtype=torch.int64, device=device)
    _launch(_scatter_kernel, blocks, row, col, place, row_ptr, packed, stats, count, rows, cols)
    begins = _sort_rows(packed, row_ptr, stats, count, rows)
    sizes = (row, row_ptr, stats, heads[1], rows)
    _launch(_heads_kernel, blocks, packed, begins, *sizes, **probe)

    found = torch.cat([stats[: _BIN.value], heads.sum(1, dtype=torch.int32)]).tolist()
    unsorted, outside, tall_if_sorted, tall, long, cells_if_sorted, cells = found
    if outside:
        return None
    if not unsorted:
        row_ptr = torch.searchsorted(
            row, torch.arange(rows + 1, dtype=row.dtype, device=device), out_int32=True
        )
        return _Sorted(None, None, row_ptr, heads[0], cells_if_sorted, bool(tall_if_sorted))
    if long:
        _sort_long_rows(packed, row_ptr)
        _launch(_heads_kernel, blocks, packed, begins, *sizes, **probe)
        tall, cells = torch.stack([stats[_TALL.value], heads[1].sum(dtype=torch.int32)]).tolist()
    return _Sorted(packed, begins, row_ptr, heads[1], cells, bool(tall))


def _sort_rows(packed: Tensor, row_ptr: Tensor, stats: Tensor, count: int, rows: int) -> Tensor:
    """Sort the rows that fit a kernel; returns the flags of where rows begin."""
    widths = [_FIRST_WIDTH << bin_ for bin_ in range(_BINS)]
    # A row of the second bin has more entries than the first width, and so on: so many rows at most.
    capacities = [rows, *(min(rows, count // (width + 1)) for width in widths[:-1])]
    lists = torch.empty(sum(capacities), dtype=torch.int32, device=packed.device)
    begins = torch.zeros(count, dtype=torch.int8, device=packed.device)
    bins = {"FIRST": _FIRST_WIDTH, "BINS": _BINS}
    _launch(_list_kernel, triton.cdiv(rows, _BLOCK), row_ptr, lists, begins, stats, count, rows, **bins)
    offset = 0
    for bin_, (width, capacity) in enumerate(zip(widths, capacities, strict=True)):
        tile_rows = max(1, _TILE // width)
        programs = min(triton.cdiv(capacity, tile_rows), _PROGRAMS)
        if programs:
            number = stats[_BIN.value + bin_ :]
            _sort_kernel[(programs,)](packed, row_ptr, lists[offset:], number, ROWS=tile_rows, WIDTH=width)
        offset += capacity
    return begins


def _sort_long_rows(packed: Tensor, row_ptr: Tensor) -> None:
    """Sort the rows that no kernel holds, in place."""
    lengths = row_ptr.diff().long()
    long = (lengths > _FIRST_WIDTH << (_BINS - 1)).nonzero()[:, 0]
    of_entry = torch.repeat_interleave(torch.arange(len(long), device=long.device), lengths[long])
    first = lengths[long].cumsum(0) - lengths[long]
    within = torch.arange(len(of_entry), device=long.device) - first[of_entry]
    where = row_ptr[long].long()[of_entry] + within
    keys, order = torch.sort(packed[where])
    packed[where] = keys[torch.sort(of_entry[order], stable=True).indices]


def _finish(row: Tensor, col: Tensor, values: Tensor, ordered: _Sorted, *, target: bool) -> Assembly:
    count, device = len(row), row.device
    out_col = torch.empty(ordered.cells, dtype=col.dtype, device=device)
    # Half types are rounded by torch afterwards, the same way everywhere.
    out_values = torch.empty(ordered.cells, dtype=sum_dtype(values.dtype), device=device)
    # One more than the entries: empty rows at the end begin where everything ends.
    out_begins = torch.empty(count + 1, dtype=torch.int32, device=device)
    out_begins[count:] = ordered.cells
    # Very many entries of one cell would keep a single lane busy; they are summed apart, given their cells.
    wanted = target or ordered.tall
    went = torch.empty(count if wanted else 0, dtype=torch.int32, device=device)
    base = ordered.heads.cumsum(0, dtype=torch.int32) - ordered.heads
    packed = row if ordered.packed is None else ordered.packed
    begins = row if ordered.begins is None else ordered.begins
    choices = {"SORTED": ordered.packed is None, "ADD": not ordered.tall, "TARGET": wanted}
    for part, out in _real_parts(values, out_values):
        inputs = (row, col, packed, begins, part, base)
        outputs = (out_col, out, out_begins, went)
        types = {"STRIDE": part.stride(0), "SUM": _TRITON_DTYPES[out.dtype]}
        _launch(_finish_kernel, triton.cdiv(count, _BLOCK), *inputs, *outputs, count, **choices, **types)
    if ordered.tall:
        order = torch.arange(count, device=device) if ordered.packed is None else packed & 0xFFFFFFFF
        out_values = _sums_of_cells(values[order], went[order])
    row_ptr = ordered.row_ptr
    if ordered.cells < count:
        row_ptr = out_begins[row_ptr]
    summed = out_values.to(values.dtype)
    return Assembly(row_ptr.to(col.dtype), out_col, summed, went if target else None)


def _sums_of_cells(values: Tensor, cell: Tensor) -> Tensor:
    """Sum values (N,) that lie in the order of their cells (N,)."""
    starts = torch.cat([cell.new_zeros(1, dtype=torch.int64), cell.diff().nonzero()[:, 0] + 1])
    return sum_runs(values.to(sum_dtype(values.dtype)), starts)


def _real_parts(values: Tensor, out: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Values and their sums; complex ones as real and imaginary parts, in place."""
    if not values.is_complex():
        return [(values, out)]
    return list(zip(torch.view_as_real(values).unbind(1), torch.view_as_real(out).unbind(1), strict=True))


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    kernel[(programs,)](*arguments, BLOCK=_BLOCK, **constants)
