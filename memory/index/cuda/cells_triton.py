"""Search of cells in Triton: three launches after the product of queries and pivots."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from memory.index.cuda.codes import BINS, DIRECTIONS, QueryLevels, scale_of
from memory.index.cuda.codes_triton import distance_of, native, read_codes, write_levels
from memory.index.cuda.layout import Candidates, Cells, Probed, Sizes

#: Pivots whose ranks a program counts per step. With fewer, a second program fits on a multiprocessor.
_PART, _SMALL_PART = 4096, 1024
#: From this many queries on, each program does more, because there are enough programs.
_MANY = 16
_BINS = tl.constexpr(BINS)


def candidates(cells: Cells, products: Tensor, sizes: Sizes, overflow: Tensor) -> Candidates:
    """See :func:`memory.index.cuda.cells.candidates`."""
    # Number of rows per distance, then of rows taken. The first kernel clears it.
    counts = torch.empty((len(products), BINS + 1), dtype=torch.int32, device=products.device)
    probed = probe(cells, products, sizes, overflow, counts)
    near = distances_read(cells, probed, sizes.capacity, counts)
    return take(cells, probed, near, counts, sizes.rerank)


def probe(cells: Cells, products: Tensor, sizes: Sizes, overflow: Tensor, counts: Tensor) -> Probed:
    """Choose the cells that queries read; clears ``counts``."""
    asked, device = len(products), products.device
    probes = min(sizes.probes, cells.pivots)
    shifts = torch.empty((asked, probes), dtype=torch.int32, device=device)
    ends = torch.empty((asked, probes), dtype=torch.int32, device=device)
    levels = torch.empty((asked, DIRECTIONS), dtype=torch.int8, device=device)
    base = torch.empty(asked, dtype=torch.int32, device=device)
    tile = max(32, triton.next_power_of_2(cells.pivots))
    probe_kernel[(asked,)](
        products,
        cells.starts,
        levels,
        base,
        shifts,
        ends,
        counts,
        overflow,
        cells.pivots,
        products.stride(0),
        probes,
        sizes.capacity,
        scale_of(cells.base.shape[1]),
        TILE=tile,
        PART=min(tile, _SMALL_PART if asked >= _MANY else _PART),
        PADDED=triton.next_power_of_2(probes),
        num_warps=16 if tile > 4096 else 4,
    )
    return Probed(QueryLevels(levels, base), shifts, ends)


def distances_read(cells: Cells, probed: Probed, capacity: int, counts: Tensor) -> Tensor:
    """Return (queries, capacity) int16 distances of the rows read, then undefined values; counts them."""
    asked, probes = probed.ends.shape
    near = torch.empty((asked, capacity), dtype=torch.int16, device=counts.device)
    slots = 256 if asked >= _MANY else 128
    distance_kernel[(triton.cdiv(capacity, slots), asked)](
        cells.codes,
        cells.live,
        probed.asked.levels.view(torch.int32),
        probed.asked.base,
        probed.shifts,
        probed.ends,
        near,
        counts,
        probes,
        capacity,
        SEARCHES=probes.bit_length(),
        SLOTS=slots,
        NATIVE=native(cells.codes),
        num_warps=4,
    )
    return near


def take(cells: Cells, probed: Probed, near: Tensor, counts: Tensor, rerank: int) -> Candidates:
    """Return the rows with the lowest distances."""
    asked, capacity = near.shape
    rows = torch.empty((asked, rerank), dtype=torch.int32, device=near.device)
    lengths = torch.empty(asked, dtype=torch.int32, device=near.device)
    probes = probed.ends.shape[1]
    span = 2048 if asked >= _MANY else 512
    take_kernel[(triton.cdiv(capacity, span), asked)](
        near,
        counts,
        probed.shifts,
        probed.ends,
        cells.rows,
        rows,
        lengths,
        probes,
        capacity,
        rerank,
        SEARCHES=probes.bit_length(),
        SPAN=span,
        num_warps=4,
    )
    return Candidates(rows, lengths)


@triton.jit
def falling_scores(products, place, inside):
    """Whole numbers from 0 to 65535 that fall as float16 scores rise; more for what never counts."""
    bits = tl.load(products + place, mask=inside, other=0.0).to(tl.int16, bitcast=True).to(tl.int32)
    return tl.where(inside, 32767 - tl.where(bits < 0, bits ^ 0x7FFF, bits), 65536)


@triton.jit
def probe_kernel(
    products,
    starts,
    levels,
    base,
    shifts,
    ends,
    counts,
    overflow,
    pivots,
    stride,
    probes,
    capacity,
    scale,
    TILE: tl.constexpr,
    PART: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Levels of one query and its nearest cells, in order: the threshold is found bit by bit."""
    query = tl.program_id(0).to(tl.int64)
    mine = products + query * stride
    write_levels(mine + pivots, levels, base, query, scale)
    tl.store(counts + query * (_BINS + 1) + tl.arange(0, _BINS), tl.zeros((_BINS,), tl.int32))
    tl.store(counts + query * (_BINS + 1) + _BINS, 0)
    place = tl.arange(0, TILE)
    number = falling_scores(mine, place, place < pivots)
    threshold = 0
    # The highest number with fewer than ``probes`` below it.
    for step in tl.static_range(16):
        tried = threshold + (1 << (15 - step))
        below = tl.sum((number < tried).to(tl.int32), 0)
        threshold = tl.where(below < probes, tried, threshold)
    left = probes - tl.sum((number < threshold).to(tl.int32), 0)
    out = query * probes
    before = 0
    # Read again in parts, whose running sums fit in registers.
    for begin in range(0, pivots, PART):
        some = begin + tl.arange(0, PART)
        again = falling_scores(mine, some, some < pivots)
        under, at = again < threshold, again == threshold
        # Both ranks in one sum: those below the threshold in the low half, those at it in the high half.
        both = before + tl.cumsum(under.to(tl.int32) + (at.to(tl.int32) << 16), 0)
        at_rank = (both >> 16) & 0xFFFF
        chosen = under | (at & (at_rank <= left))
        rank = (both & 0xFFFF) + tl.minimum(at_rank, left) - 1
        tl.store(shifts + out + rank, some, mask=chosen)
        tl.store(ends + out + rank, again, mask=chosen)
        before += tl.sum(under.to(tl.int32) + (at.to(tl.int32) << 16), 0)
    tl.debug_barrier()
    slot = tl.arange(0, PADDED)
    used = slot < probes
    # Past the first-level cache: other threads have written these.
    cell = tl.load(shifts + out + slot, mask=used, other=0, cache_modifier=".cg")
    score = tl.load(ends + out + slot, mask=used, other=0, cache_modifier=".cg")
    tl.debug_barrier()
    start = tl.load(starts + cell, mask=used, other=0)
    size = tl.load(starts + cell + 1, mask=used, other=0) - start
    nearer = (score[None, :] < score[:, None]) | (
        (score[None, :] == score[:, None]) & (slot[None, :] < slot[:, None])
    )
    nearer = nearer & used[None, :]
    rank = tl.sum(nearer.to(tl.int32), 1)
    earlier = tl.sum(tl.where(nearer, size[None, :], 0), 1)
    tl.store(shifts + out + rank, start - earlier, mask=used)
    tl.store(ends + out + rank, tl.minimum(earlier + size, capacity), mask=used)
    cut = tl.sum(size, 0) - capacity
    if cut > 0:
        tl.atomic_add(overflow, tl.full((), 1, tl.int64), sem="relaxed")
        tl.atomic_add(overflow + 1, cut.to(tl.int64), sem="relaxed")


@triton.jit
def slots_of(place, used, shifts, ends, query, probes, SEARCHES: tl.constexpr, SPAN: tl.constexpr):
    """Slots of places among a query's rows: each finds its cell by halving."""
    low = tl.zeros((SPAN,), tl.int32)
    high = tl.zeros((SPAN,), tl.int32) + probes
    for _ in tl.static_range(SEARCHES):
        middle = (low + high) // 2
        going = used & (low < high)
        end = tl.load(ends + query * probes + middle, mask=going, other=0)
        right = going & (end <= place)
        high = tl.where(right, high, middle)
        low = tl.where(right, middle + 1, low)
    return place.to(tl.int64) + tl.load(shifts + query * probes + low, mask=used, other=0)


@triton.jit
def distance_kernel(
    codes,
    live,
    levels,
    base,
    shifts,
    ends,
    distances,
    counts,
    probes,
    capacity,
    SEARCHES: tl.constexpr,
    SLOTS: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Distances of some of one query's rows, and how many rows have which."""
    query = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0) * SLOTS
    total = tl.load(ends + query * probes + probes - 1)
    if begin < total:
        place = begin + tl.arange(0, SLOTS)
        used = place < total
        slot = slots_of(place, used, shifts, ends, query, probes, SEARCHES, SLOTS)
        code = read_codes(codes, slot, used, SLOTS)
        counted = used & (tl.load(live + slot, mask=used, other=0).to(tl.int32) != 0)
        near = distance_of(code, levels, base, query, NATIVE, SLOTS)
        tl.store(distances + query * capacity + place, tl.where(counted, near, 32767).to(tl.int16), mask=used)
        tl.atomic_add(counts + query * (_BINS + 1) + near, 1, mask=counted, sem="relaxed")


@triton.jit
def take_kernel(
    distances,
    counts,
    shifts,
    ends,
    rows_of,
    rows,
    lengths,
    probes,
    capacity,
    rerank,
    SEARCHES: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Rows of a span of one query's places that are near enough, wherever there is room in its list."""
    query = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0) * SPAN
    total = tl.load(ends + query * probes + probes - 1)
    own = counts + query * (_BINS + 1)
    if begin < total:
        numbers = tl.load(own + tl.arange(0, _BINS))
        inside = tl.cumsum(numbers, 0) <= rerank
        bins = tl.sum(inside.to(tl.int32), 0)
        whole = tl.sum(tl.where(inside, numbers, 0), 0)
        # The lowest distance has more rows than there is room for.
        alone = (whole == 0) & (bins < _BINS)
        place = begin + tl.arange(0, SPAN)
        used = place < total
        near = tl.load(distances + query * capacity + place, mask=used, other=32767).to(tl.int32)
        taken = tl.where(alone, near == bins, near < bins)
        earlier = 0
        if alone:
            for first in range(0, begin, SPAN):
                other = tl.load(distances + query * capacity + first + tl.arange(0, SPAN)).to(tl.int32)
                earlier += tl.sum((other == bins).to(tl.int32), 0)
        rank = tl.cumsum(taken.to(tl.int32), 0)
        taken = taken & (earlier + rank <= rerank)
        number = tl.sum(taken.to(tl.int32), 0)
        if number > 0:
            reserved = tl.atomic_add(own + _BINS, number, sem="relaxed")
            start = tl.where(alone, earlier, reserved)
            slot = slots_of(place, taken, shifts, ends, query, probes, SEARCHES, SPAN)
            row = tl.load(rows_of + slot, mask=taken, other=0)
            tl.store(rows + query * rerank + start + rank - 1, row, mask=taken)
        if begin == 0:
            tl.store(lengths + query, tl.minimum(tl.where(alone, numbers_at(own, bins), whole), rerank))
    elif begin == 0:
        tl.store(lengths + query, 0)


@triton.jit
def numbers_at(own, bins):
    """Rows of one distance, of the last where there is none such."""
    return tl.load(own + tl.minimum(bins, _BINS - 1))
