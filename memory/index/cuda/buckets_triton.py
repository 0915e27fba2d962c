"""Reading buckets and leaving out doubles in Triton."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from memory.index.cuda.bits import PackedQueries
from memory.index.cuda.buckets import BUCKET_LIMIT, Functions, Probes, Tables, hash_size
from memory.index.cuda.popcount import native, popcount

_SLOTS, _LISTED = 256, 1024


def read_offsets(functions: Functions, tables: Tables, pairs: Tensor, value: Tensor, depth: int) -> Probes:
    """See :func:`memory.index.cuda.buckets.read_offsets`."""
    asked, count = pairs.shape
    first = torch.empty((asked, count), dtype=torch.int64, device=pairs.device)
    ends = torch.empty((asked, count), dtype=torch.int32, device=pairs.device)
    tile = triton.next_power_of_2(count)
    offsets_kernel[(asked,)](
        pairs,
        value.contiguous(),
        functions.first,
        functions.second,
        tables.offsets,
        first,
        ends,
        count,
        depth,
        value.shape[1],
        tables.offsets.shape[1],
        tables.postings.shape[1],
        functions.bits,
        2 * functions.bits - tables.address_bits,
        LIMIT=BUCKET_LIMIT,
        TILE=tile,
        num_warps=min(16, max(1, tile // 256)),
    )
    return Probes(first, ends)


def gather(
    probes: Probes, tables: Tables, codes: Tensor, packed: PackedQueries, capacity: int
) -> tuple[Tensor, Tensor]:
    """See :func:`memory.index.cuda.buckets.gather`."""
    asked, count = probes.ends.shape
    rows = torch.empty((asked, capacity), dtype=torch.int32, device=codes.device)
    distances = torch.empty((asked, capacity), dtype=torch.int16, device=codes.device)
    words = codes.shape[1]
    gather_kernel[(triton.cdiv(capacity, _SLOTS), asked)](
        probes.first.contiguous(),
        probes.ends.contiguous(),
        tables.postings,
        codes,
        packed.signs,
        packed.planes,
        rows,
        distances,
        count,
        capacity,
        SEARCHES=count.bit_length(),
        WORDS=words,
        PADDED=triton.next_power_of_2(words),
        PLANES=packed.planes.shape[1],
        SLOTS=_SLOTS,
        NATIVE=native(codes),
        num_warps=4,
    )
    return rows, distances


def distinct(listed: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`memory.index.cuda.buckets.distinct`."""
    listed = listed.contiguous()
    asked, count = listed.shape
    size = hash_size(count)
    owners = torch.full((asked, size), count, dtype=torch.int32, device=listed.device)
    out = torch.full((asked, count), -1, dtype=torch.int32, device=listed.device)
    lengths = torch.empty(asked, dtype=torch.int32, device=listed.device)
    distinct_kernel[(asked,)](
        listed, owners, out, lengths, count, SIZE=size, LOG=size.bit_length() - 1, TILE=_LISTED, num_warps=8
    )
    return out, lengths


@triton.jit
def offsets_kernel(
    pairs,
    value,
    first_function,
    second_function,
    offsets,
    first,
    ends,
    count,
    depth,
    values,
    buckets,
    rows,
    bits,
    shift,
    LIMIT: tl.constexpr,
    TILE: tl.constexpr,
):
    """Start and running end of the buckets of one query."""
    query = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, TILE)
    pair = tl.load(pairs + query * count + place, mask=place < count, other=-1)
    used = pair >= 0
    pair = tl.maximum(pair, 0)
    table = pair // (depth * depth)
    of_first = tl.load(first_function + table, mask=used, other=0) * depth + pair // depth % depth
    of_second = tl.load(second_function + table, mask=used, other=0) * depth + pair % depth
    high = tl.load(value + query * values + of_first, mask=used, other=0)
    low = tl.load(value + query * values + of_second, mask=used, other=0)
    start = table.to(tl.int64) * buckets + (((high << bits) | low) >> shift)
    begin = tl.load(offsets + start, mask=used, other=0)
    end = tl.load(offsets + start + 1, mask=used, other=0)
    lengths = tl.minimum(end - begin, LIMIT)
    tl.store(first + query * count + place, table.to(tl.int64) * rows + begin, mask=place < count)
    tl.store(ends + query * count + place, tl.cumsum(lengths, 0), mask=place < count)


@triton.jit
def gather_kernel(
    first,
    ends,
    postings,
    codes,
    signs,
    planes,
    rows,
    distances,
    count,
    capacity,
    SEARCHES: tl.constexpr,
    WORDS: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,
    SLOTS: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Rows and distances of some slots of one query: each slot finds its bucket by halving."""
    query = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0) * SLOTS
    slot = begin + tl.arange(0, SLOTS)
    out = query * capacity + slot
    found = tl.load(ends + query * count + count - 1)
    if begin < found:
        used = (slot < found) & (slot < capacity)
        low = tl.zeros((SLOTS,), tl.int32)
        high = tl.zeros((SLOTS,), tl.int32) + count
        for _ in tl.static_range(SEARCHES):
            middle = (low + high) // 2
            end = tl.load(ends + query * count + middle, mask=used & (middle < high), other=0)
            right = (end <= slot) & (low < high)
            high = tl.where(right, high, middle)
            low = tl.where(right, middle + 1, low)
        before = tl.load(ends + query * count + low - 1, mask=used & (low > 0), other=0)
        entry = tl.load(first + query * count + low, mask=used, other=0) + slot - before
        row = tl.load(postings + entry, mask=used, other=0)
        word = tl.arange(0, PADDED)
        inside = used[:, None] & (word < WORDS)[None, :]
        code = tl.load(codes + row.to(tl.int64)[:, None] * WORDS + word[None, :], mask=inside, other=0)
        sign = tl.load(signs + query * WORDS + word, mask=word < WORDS, other=0)
        differing = code ^ sign[None, :]
        ones = tl.zeros((SLOTS, PADDED), tl.int32)
        for plane in tl.static_range(PLANES):
            weight = tl.load(planes + (query * PLANES + plane) * WORDS + word, mask=word < WORDS, other=0)
            ones += popcount(differing & weight[None, :], NATIVE) << plane
        distance = tl.where(used, tl.sum(ones, 1), 32767)
        tl.store(rows + out, row, mask=slot < capacity)
        tl.store(distances + out, distance.to(tl.int16), mask=slot < capacity)
    else:
        tl.store(rows + out, tl.zeros((SLOTS,), tl.int32), mask=slot < capacity)
        tl.store(distances + out, tl.full((SLOTS,), 32767, tl.int16), mask=slot < capacity)


@triton.jit
def distinct_kernel(
    listed, owners, out, lengths, count, SIZE: tl.constexpr, LOG: tl.constexpr, TILE: tl.constexpr
):
    """Every entry asks for its place; the first of each place gets it, whatever the order of asking."""
    query = tl.program_id(0).to(tl.int64)
    for begin in range(0, count, TILE):
        slot = begin + tl.arange(0, TILE)
        row = tl.load(listed + query * count + slot, mask=slot < count, other=-1)
        place = ((row * -1640531527).to(tl.uint32, bitcast=True) >> (32 - LOG)).to(tl.int32)
        tl.atomic_min(owners + query * SIZE + place, slot, mask=row >= 0, sem="relaxed")
    tl.debug_barrier()
    total = 0
    for begin in range(0, count, TILE):
        slot = begin + tl.arange(0, TILE)
        row = tl.load(listed + query * count + slot, mask=slot < count, other=-1)
        used = row >= 0
        place = ((row * -1640531527).to(tl.uint32, bitcast=True) >> (32 - LOG)).to(tl.int32)
        # Past the first-level cache, where the additions of other threads are not seen.
        owner = tl.load(owners + query * SIZE + place, mask=used, other=0, cache_modifier=".cg")
        other = tl.load(listed + query * count + owner, mask=used, other=-1)
        kept = used & ((owner == slot) | (other != row))
        rank = total + tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(out + query * count + rank, row, mask=kept)
        total += tl.sum(kept.to(tl.int32), 0)
    tl.store(lengths + query, total)
