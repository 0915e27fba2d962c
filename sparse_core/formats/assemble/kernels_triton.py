"""Kernels of the assembly; see triton.py for the passes."""

from __future__ import annotations

import triton
import triton.language as tl

# Indices of `stats`: results of the first pass, results of the later ones, then the number of rows in each
# bin.
UNSORTED = tl.constexpr(0)
OUTSIDE = tl.constexpr(1)
TALL_IF_SORTED = tl.constexpr(2)
CELLS_IF_SORTED = tl.constexpr(3)
TALL = tl.constexpr(4)
CELLS = tl.constexpr(5)
LONG = tl.constexpr(6)
BIN = tl.constexpr(7)


@triton.jit
def inspect_kernel(  # type: ignore[no-untyped-def]
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
    """Is everything sorted, is everything inside, and how many cells start in each block if it is sorted.

    The number of block ``i`` goes to ``heads[i + 1]``: running sums are then where each block's cells begin.
    """
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
    tl.store(stats + UNSORTED, 1, mask=tl.sum(descends.to(tl.int32), axis=0) > 0)
    tl.store(stats + OUTSIDE, 1, mask=tl.sum(outside.to(tl.int32), axis=0) > 0)
    tl.store(stats + TALL_IF_SORTED, 1, mask=tl.sum(tall.to(tl.int32), axis=0) > 0)
    head = inside & ((lane == 0) | (r != r_before) | (c != c_before))
    _note_heads(heads, stats + CELLS_IF_SORTED, tl.sum(head.to(tl.int32), axis=0))


@triton.jit
def _note_heads(heads, total, number):  # type: ignore[no-untyped-def]
    """Leave this block's number of cells for the running sums, and add it to the total."""
    block = tl.program_id(0)
    tl.store(heads + block + 1, number)
    tl.store(heads, 0, mask=block == 0)
    tl.atomic_add(total, number, sem="relaxed")


@triton.jit
def count_kernel(  # type: ignore[no-untyped-def]
    row,
    place,
    lengths,
    stats,
    count,
    rows,
    BLOCK: tl.constexpr,
):
    """Count the entries of row ``r`` in ``lengths[r + 1]``; the count before is its place."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < count * tl.load(stats + UNSORTED)
    r = tl.load(row + lane, mask=inside, other=0).to(tl.int64)
    inside = inside & (r >= 0) & (r < rows)
    found = tl.atomic_add(lengths + tl.where(inside, r, 0) + 1, 1, mask=inside, sem="relaxed")
    tl.store(place + lane, found, mask=inside)


@triton.jit
def list_kernel(  # type: ignore[no-untyped-def]
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
        slot = tl.atomic_add(stats + BIN + b, number, sem="relaxed")
        rank = tl.cumsum(mine.to(tl.int32), axis=0) - 1
        tl.store(lists + offset + slot + rank, r.to(tl.int32), mask=mine)
        # Rows longer than `low` are at most this many; the host reserves as much.
        offset += tl.minimum(rows, count // (low + 1)).to(tl.int64)
    long = tl.where(length > (FIRST << (BINS - 1)), length, 0)
    tl.atomic_add(stats + LONG, tl.sum(long, axis=0), sem="relaxed")


@triton.jit
def scatter_kernel(  # type: ignore[no-untyped-def]
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
    inside = lane < count * tl.load(stats + UNSORTED)
    # What is read once leaves the cache to the places written to, several of which share a sector.
    r = tl.load(row + lane, mask=inside, other=-1, eviction_policy="evict_first").to(tl.int64)
    c = tl.load(col + lane, mask=inside, other=0, eviction_policy="evict_first").to(tl.int64)
    inside = inside & (r >= 0) & (r < rows)
    start = tl.load(row_ptr + r, mask=inside, other=0).to(tl.int64)
    slot = start + tl.load(place + lane, mask=inside, other=0, eviction_policy="evict_first")
    tl.store(packed + slot, (c << 32) | lane, mask=inside)


@triton.jit
def sort_kernel(  # type: ignore[no-untyped-def]
    packed,
    row_ptr,
    lists,
    stats,
    count,
    rows,
    FIRST: tl.constexpr,
    BINS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sort the listed rows in place, bin after bin: one launch, as the host knows no bin to be empty."""
    offset = 0
    for b in tl.static_range(BINS):
        _sort_bin(packed, row_ptr, lists + offset, stats + BIN + b, TILE, FIRST << b)
        low = (FIRST << b) // 2 if b > 0 else 0
        offset += tl.minimum(rows, count // (low + 1)).to(tl.int64)


@triton.jit
def _sort_bin(  # type: ignore[no-untyped-def]
    packed,
    row_ptr,
    listed,
    number,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sort the listed rows of up to WIDTH entries."""
    ROWS: tl.constexpr = TILE // WIDTH if TILE > WIDTH else 1
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
def heads_kernel(  # type: ignore[no-untyped-def]
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
    """How many cells start in each block of the sorted entries, and whether one holds very many of them.

    ``heads`` is written as in the first pass.
    """
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # Entries outside the matrix have no place; what lies beyond the others was never written.
    count = tl.load(row_ptr + rows)
    inside = lane < count
    key = tl.load(packed + lane, mask=inside, other=0)
    before = tl.load(packed + lane - 1, mask=inside & (lane > 0), other=-1)
    begin = tl.load(begins + lane, mask=inside, other=0)
    head = inside & ((begin != 0) | ((key >> 32) != (before >> 32)))
    _note_heads(heads, stats + CELLS, tl.sum(head.to(tl.int32), axis=0))
    probe = inside & (lane % PROBE == 0) & (lane + PROBE < count)
    later = tl.load(packed + lane + PROBE, mask=probe, other=-1)
    probe = probe & ((key >> 32) == (later >> 32))
    r = tl.load(row + (key & 0xFFFFFFFF), mask=probe, other=0)
    r_later = tl.load(row + (later & 0xFFFFFFFF), mask=probe, other=1)
    tall = probe & (r == r_later)
    tl.store(stats + TALL, 1, mask=tl.sum(tall.to(tl.int32), axis=0) > 0)


@triton.jit
def finish_kernel(  # type: ignore[no-untyped-def]
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
        # Read in order; the values, read here and there, are to stay in the cache.
        key = tl.load(packed + lane, mask=inside, other=0, eviction_policy="evict_first")
        c = key >> 32
        position = key & 0xFFFFFFFF
        begin = inside & (tl.load(begins + lane, mask=inside, other=0) != 0)
        head = begin | (inside & (c != (tl.load(packed + lane - 1, mask=second, other=0) >> 32)))
    cell = tl.load(base + tl.program_id(0)) + tl.cumsum(head.to(tl.int32), axis=0) - 1
    if TARGET:
        tl.store(target + position, cell, mask=inside)
    tl.store(out_col + cell, c.to(out_col.dtype.element_ty), mask=head, eviction_policy="evict_first")
    # One more than the entries: empty rows at the end begin where everything ends.
    end = lane == count
    tl.store(out_begins + lane, tl.where(end, cell + 1, cell), mask=begin | end)
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
    tl.store(out_values + cell.to(tl.int64) * STRIDE, total, mask=head, eviction_policy="evict_first")
