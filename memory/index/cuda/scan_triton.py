"""The scan in Triton: one read of the codes, then three passes over small distances that stay in the cache.

First the minima of groups of slots bound the threshold: for k slots, k groups have a slot at or below the
bound. Then only slots within the bound are counted, which needs few atomic additions. The additions are of
integers, so their order does not matter.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from memory.index.cuda.codes import BINS
from memory.index.cuda.codes_triton import asked_levels, distance_of, native, read_codes

_SLOTS, _GROUP = 256, 32
_PASS = 8192
#: Copies of the histogram of minima, so that programs seldom add to the same number.
_COPIES = 8
_QUERIES_AT_ONCE = 8


def scan_top(
    codes: Tensor, coordinates: Tensor, count: int, dim: int, rows: Tensor | None, live: Tensor | None
) -> Tensor:
    """See :func:`memory.index.cuda.scan.scan_top`."""
    parts = [
        _some(codes.contiguous(), coordinates[first : first + _QUERIES_AT_ONCE], count, dim, rows, live)
        for first in range(0, len(coordinates), _QUERIES_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _some(
    codes: Tensor, coordinates: Tensor, count: int, dim: int, rows: Tensor | None, live: Tensor | None
) -> Tensor:
    levels, base = asked_levels(coordinates, dim)
    slots, asked, device = len(codes), len(coordinates), codes.device
    blocks = triton.cdiv(slots, _PASS)
    distances = torch.empty((asked, slots), dtype=torch.int16, device=device)
    # Minima of groups in several copies, then the histogram.
    numbers = torch.zeros((asked, _COPIES + 1, BINS), dtype=torch.int32, device=device)
    counts = torch.empty((asked, 2, blocks), dtype=torch.int32, device=device)
    out = torch.full((asked, count), -1, dtype=torch.int32, device=device)
    distance_kernel[(triton.cdiv(slots, _SLOTS),)](
        codes,
        codes if live is None else live,
        levels.view(torch.int32),
        base,
        distances,
        numbers,
        slots,
        QUERIES=asked,
        LIVE=live is not None,
        SLOTS=_SLOTS,
        GROUP=_GROUP,
        BINS=BINS,
        COPIES=_COPIES,
        NATIVE=native(codes),
        num_warps=4,
    )
    grid, sizes = (blocks, asked), {"BLOCK": _PASS, "BINS": BINS, "COPIES": _COPIES}
    refine_kernel[grid](distances, numbers, slots, count, **sizes, num_warps=8)
    count_kernel[grid](distances, numbers, counts, slots, count, **sizes, num_warps=8)
    write_kernel[grid](
        distances,
        numbers,
        counts,
        codes if rows is None else rows,
        out,
        slots,
        count,
        blocks,
        ROWS=rows is not None,
        BLOCKS=triton.next_power_of_2(blocks),
        **sizes,
        num_warps=8,
    )
    return out


@triton.jit
def distance_kernel(
    codes,
    live,
    levels,
    base,
    distances,
    numbers,
    slots,
    QUERIES: tl.constexpr,
    LIVE: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUP: tl.constexpr,
    BINS: tl.constexpr,
    COPIES: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Distances of a block of slots from all queries, and how many groups have which minimum."""
    block = tl.program_id(0)
    slot = block.to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    inside = slot < slots
    counted = inside
    if LIVE:
        counted = inside & (tl.load(live + slot, mask=inside, other=0).to(tl.int32) != 0)
    code = read_codes(codes, slot, inside, SLOTS)
    for query in tl.static_range(QUERIES):
        near = tl.where(counted, distance_of(code, levels, base, query, NATIVE, SLOTS), 32767)
        start = tl.full((), query, tl.int64) * slots
        tl.store(distances + start + slot, near.to(tl.int16), mask=inside)
        least = tl.min(tl.reshape(near, (SLOTS // GROUP, GROUP)), 1)
        bin_of = (query * (COPIES + 1) + block % COPIES) * BINS + least
        tl.atomic_add(numbers + bin_of, 1, mask=least < BINS, sem="relaxed")


@triton.jit
def read_distances(distances, query, slots, slot):
    """Distances of some slots, 32767 behind the last."""
    start = query.to(tl.int64) * slots
    return tl.load(distances + start + slot, mask=slot < slots, other=32767).to(tl.int32)


@triton.jit
def refine_kernel(
    distances, numbers, slots, count, BLOCK: tl.constexpr, BINS: tl.constexpr, COPIES: tl.constexpr
):
    """Count the slots of each distance up to the bound."""
    query = tl.program_id(1)
    own = numbers + query * (COPIES + 1) * BINS
    groups = tl.zeros((BINS,), tl.int32)
    for copy in tl.static_range(COPIES):
        groups += tl.load(own + copy * BINS + tl.arange(0, BINS))
    bound = tl.sum((tl.cumsum(groups, 0) < count).to(tl.int32), 0)
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    distance = read_distances(distances, query, slots, slot)
    near = (distance <= bound) & (distance < BINS)
    tl.atomic_add(own + COPIES * BINS + distance, 1, mask=near, sem="relaxed")


@triton.jit
def threshold_of(numbers, query, count, BINS: tl.constexpr, COPIES: tl.constexpr):
    """The distance at which ``count`` slots are reached; BINS where there are fewer."""
    histogram = numbers + (query * (COPIES + 1) + COPIES) * BINS
    return tl.sum((tl.cumsum(tl.load(histogram + tl.arange(0, BINS)), 0) < count).to(tl.int32), 0)


@triton.jit
def count_kernel(
    distances, numbers, counts, slots, count, BLOCK: tl.constexpr, BINS: tl.constexpr, COPIES: tl.constexpr
):
    """Slots of a block below and at the threshold."""
    block, query = tl.program_id(0), tl.program_id(1)
    threshold = threshold_of(numbers, query, count, BINS, COPIES)
    slot = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    distance = read_distances(distances, query, slots, slot)
    place = counts + query * 2 * tl.num_programs(0) + block
    tl.store(place, tl.sum((distance < threshold).to(tl.int32), 0))
    tl.store(place + tl.num_programs(0), tl.sum((distance == threshold).to(tl.int32), 0))


@triton.jit
def write_kernel(
    distances,
    numbers,
    counts,
    rows,
    out,
    slots,
    count,
    blocks,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    BINS: tl.constexpr,
    COPIES: tl.constexpr,
):
    """Write the slots of a block behind those of the blocks before it."""
    block, query = tl.program_id(0), tl.program_id(1)
    threshold = threshold_of(numbers, query, count, BINS, COPIES)
    number = tl.arange(0, BLOCKS)
    below = tl.load(counts + query * 2 * blocks + number, mask=number < blocks, other=0)
    at = tl.load(counts + (query * 2 + 1) * blocks + number, mask=number < blocks, other=0)
    left = count - tl.sum(below, 0)
    at_before = tl.sum(tl.where(number < block, at, 0), 0)
    base = tl.sum(tl.where(number < block, below, 0), 0) + tl.minimum(at_before, left)
    slot = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    distance = read_distances(distances, query, slots, slot)
    equal = distance == threshold
    taken = (distance < threshold) | (equal & (at_before + tl.cumsum(equal.to(tl.int32), 0) <= left))
    rank = base + tl.cumsum(taken.to(tl.int32), 0) - 1
    value = slot.to(tl.int32)
    if ROWS:
        value = tl.load(rows + slot, mask=taken, other=0)
    tl.store(out + query * count + rank, value, mask=taken)
