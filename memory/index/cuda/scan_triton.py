"""The scan in Triton: one read of the codes, then three passes over small distances that stay in the cache.

The minima of groups of rows bound the threshold first: as many groups as rows are wanted have a row at or
below it. Only rows within this bound are counted one by one, so that the counts need few atomic additions
(of whole numbers: their order does not matter).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from memory.index.cuda.popcount import native, popcount

_CELLS, _GROUP = 1024, 32
_PASS = 8192
#: Histograms of minima, so that programs seldom add to the same number.
_COPIES = 8
_QUERIES_AT_ONCE = 8


def hamming_top(codes: Tensor, queries: Tensor, count: int, planes: Tensor, alive: Tensor | None) -> Tensor:
    """See :func:`memory.index.cuda.scan.hamming_top`."""
    parts = [
        _some(codes, queries[first:stop], count, planes[first:stop], alive)
        for first in range(0, len(queries), _QUERIES_AT_ONCE)
        for stop in [first + _QUERIES_AT_ONCE]
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _some(codes: Tensor, queries: Tensor, count: int, planes: Tensor, alive: Tensor | None) -> Tensor:
    codes = codes if codes.stride(1) == 1 else codes.contiguous()
    queries, planes = queries.contiguous(), planes.contiguous()
    words, rows = codes.shape
    asked, layers = planes.shape[:2]
    device = codes.device
    bins = triton.next_power_of_2(32 * words * ((1 << layers) - 1) + 1)
    blocks = triton.cdiv(rows, _PASS)
    distances = torch.empty((asked, rows), dtype=torch.int16, device=device)
    minima = torch.zeros((asked, _COPIES, bins), dtype=torch.int32, device=device)
    histogram = torch.zeros((asked, bins), dtype=torch.int32, device=device)
    counts = torch.empty((asked, 2, blocks), dtype=torch.int32, device=device)
    out = torch.full((asked, count), -1, dtype=torch.int32, device=device)
    padded = triton.next_power_of_2(asked)
    block = max(256, _CELLS // padded)
    distance_kernel[(triton.cdiv(rows, block),)](
        codes,
        queries,
        planes,
        codes if alive is None else alive,
        distances,
        minima,
        rows,
        codes.stride(0),
        asked,
        ALIVE=alive is not None,
        QUERIES=padded,
        WORDS=words,
        PLANES=layers,
        BLOCK=block,
        GROUP=_GROUP,
        BINS=bins,
        COPIES=_COPIES,
        NATIVE=native(codes),
        num_warps=4,
    )
    grid = (blocks, asked)
    refine_kernel[grid](
        distances, minima, histogram, rows, count, BLOCK=_PASS, BINS=bins, COPIES=_COPIES, num_warps=8
    )
    count_kernel[grid](distances, histogram, counts, rows, count, BLOCK=_PASS, BINS=bins, num_warps=8)
    write_kernel[grid](
        distances,
        histogram,
        counts,
        out,
        rows,
        count,
        blocks,
        BLOCK=_PASS,
        BLOCKS=triton.next_power_of_2(blocks),
        BINS=bins,
        num_warps=8,
    )
    return out


@triton.jit
def distance_kernel(
    codes,
    signs,
    planes,
    alive,
    distances,
    minima,
    rows,
    stride,
    asked,
    ALIVE: tl.constexpr,
    QUERIES: tl.constexpr,
    WORDS: tl.constexpr,
    PLANES: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    BINS: tl.constexpr,
    COPIES: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Distances of a block of rows from all queries, and how many groups have which minimum."""
    block = tl.program_id(0)
    # Query, place in a group, group: minima are taken over the middle, reads run along the last.
    group = tl.arange(0, BLOCK // GROUP)[None, None, :]
    row = block.to(tl.int64) * BLOCK + tl.arange(0, GROUP)[None, :, None] * (BLOCK // GROUP) + group
    query = tl.arange(0, QUERIES)[:, None, None]
    asking = query < asked
    live = row < rows
    if ALIVE:
        live = live & (tl.load(alive + row, mask=live, other=0).to(tl.int32) != 0)
    total = tl.zeros((QUERIES, GROUP, BLOCK // GROUP), tl.int32)
    for word in tl.static_range(WORDS):
        place = codes + word * stride.to(tl.int64) + row
        code = tl.load(place, mask=live, other=0, eviction_policy="evict_first")
        sign = tl.load(signs + query * WORDS + word, mask=asking, other=0)
        differing = code ^ sign
        for plane in tl.static_range(PLANES):
            weight = tl.load(planes + (query * PLANES + plane) * WORDS + word, mask=asking, other=0)
            total += popcount(differing & weight, NATIVE) << plane
    total = tl.where(live & asking, total, 32767)
    out = distances + query * rows.to(tl.int64) + row
    tl.store(out, total.to(tl.int16), mask=(row < rows) & asking)
    least = tl.min(total, 1)
    bin_of = (tl.arange(0, QUERIES)[:, None] * COPIES + block % COPIES) * BINS + least
    tl.atomic_add(minima + bin_of, 1, mask=least < BINS, sem="relaxed")


@triton.jit
def refine_kernel(
    distances, minima, histogram, rows, count, BLOCK: tl.constexpr, BINS: tl.constexpr, COPIES: tl.constexpr
):
    """Count the rows of each distance up to the bound."""
    query = tl.program_id(1)
    bins = tl.arange(0, BINS)
    groups = tl.zeros((BINS,), tl.int32)
    for copy in tl.static_range(COPIES):
        groups += tl.load(minima + (query * COPIES + copy) * BINS + bins)
    bound = tl.sum((tl.cumsum(groups, 0) < count).to(tl.int32), 0)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    start = query * rows.to(tl.int64)
    distance = tl.load(distances + start + row, mask=row < rows, other=32767).to(tl.int32)
    near = (distance <= bound) & (distance < BINS)
    tl.atomic_add(histogram + query * BINS + distance, 1, mask=near, sem="relaxed")


@triton.jit
def threshold_of(histogram, query, count, BINS: tl.constexpr):
    """The distance at which ``count`` rows are reached; BINS where there are fewer."""
    numbers = tl.load(histogram + query * BINS + tl.arange(0, BINS))
    return tl.sum((tl.cumsum(numbers, 0) < count).to(tl.int32), 0)


@triton.jit
def count_kernel(distances, histogram, counts, rows, count, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Rows of a block below and at the threshold."""
    block, query = tl.program_id(0), tl.program_id(1)
    threshold = threshold_of(histogram, query, count, BINS)
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    start = query * rows.to(tl.int64)
    distance = tl.load(distances + start + row, mask=row < rows, other=32767).to(tl.int32)
    place = counts + query * 2 * tl.num_programs(0) + block
    tl.store(place, tl.sum((distance < threshold).to(tl.int32), 0))
    tl.store(place + tl.num_programs(0), tl.sum((distance == threshold).to(tl.int32), 0))


@triton.jit
def write_kernel(
    distances,
    histogram,
    counts,
    out,
    rows,
    count,
    blocks,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    BINS: tl.constexpr,
):
    """Write the rows of a block behind those of the blocks before it."""
    block, query = tl.program_id(0), tl.program_id(1)
    threshold = threshold_of(histogram, query, count, BINS)
    number = tl.arange(0, BLOCKS)
    below = tl.load(counts + query * 2 * blocks + number, mask=number < blocks, other=0)
    at = tl.load(counts + (query * 2 + 1) * blocks + number, mask=number < blocks, other=0)
    left = count - tl.sum(below, 0)
    at_before = tl.sum(tl.where(number < block, at, 0), 0)
    base = tl.sum(tl.where(number < block, below, 0), 0) + tl.minimum(at_before, left)
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    start = query * rows.to(tl.int64)
    distance = tl.load(distances + start + row, mask=row < rows, other=32767).to(tl.int32)
    equal = distance == threshold
    taken = (distance < threshold) | (equal & (at_before + tl.cumsum(equal.to(tl.int32), 0) <= left))
    rank = base + tl.cumsum(taken.to(tl.int32), 0) - 1
    tl.store(out + query * count + rank, row.to(tl.int32), mask=taken)
