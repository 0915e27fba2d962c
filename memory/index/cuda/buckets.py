"""Hash tables on the device: which rows share a likely pair of hash values with a query.

The scheme is that of :class:`memory.index.lsh.LSHIndex`: cross-polytope functions, a table a pair of them,
the cheapest pairs of values over all tables as probes. Every size is fixed beforehand; what does not fit in
the room for a query's candidates is counted and given back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from memory.index.cuda.bits import PackedQueries, weighted_distance
from memory.index.cuda.implementation import NEVER, chosen
from memory.index.cuda.selection import WIDTH_LIMIT, lowest
from memory.index.hashing import HashFunctions, function_pairs
from sparse_core.dispatch import Impl

#: Rows of one bucket that a query reads.
BUCKET_LIMIT = 2048
_SPREAD = 4
_CELLS_AT_ONCE = 1 << 26
_SIZE_SCALE = 32768.0
_COST_SHIFT, _COST_LIMIT = 12, 16383
_HASH = 0x9E3779B9


class Candidates(NamedTuple):
    """Rows that may be near.

    Attributes:
        rows: (queries, count) int32, -1 behind the last.
        lengths: (queries,) int32 how many there are; a few may be there twice.
        overflow: (queries,) int32 rows in the probed buckets that there was no room for.
    """

    rows: Tensor
    lengths: Tensor
    overflow: Tensor


class Functions:
    """Cross-polytope functions on a device.

    Args:
        dim: of a vector.
        functions, tables: hash functions, and pairs of them.
        bits: of a value.
        seed: of the directions.
        device: where they are.
    """

    def __init__(
        self, dim: int, functions: int, tables: int, bits: int, seed: int, device: torch.device
    ) -> None:
        drawn = HashFunctions("cross-polytope", dim, functions, bits, seed)
        self.functions, self.tables, self.bits, self.width = functions, tables, bits, drawn.width
        directions = torch.from_numpy(drawn.directions[:, : functions * drawn.width].copy())
        # Half precision on a GPU, where products of it are many times faster; rows and queries alike.
        self.dtype = torch.float16 if device.type == "cuda" else torch.float32
        self._directions = directions.to(device, self.dtype)
        pairs = function_pairs(functions, tables)
        self.first = torch.tensor([pair[0] for pair in pairs], device=device)
        self.second = torch.tensor([pair[1] for pair in pairs], device=device)

    def project(self, vectors: Tensor) -> Tensor:
        """(rows, functions, width) float16 coordinates."""
        product = vectors.to(self.dtype) @ self._directions
        return product.to(torch.float16).view(len(vectors), self.functions, self.width)

    def values(self, projected: Tensor) -> Tensor:
        """(rows, functions) int32 values: axis and sign."""
        axis = projected.abs().argmax(2)
        negative = projected.gather(2, axis[..., None])[..., 0] < 0
        return (2 * axis + negative).to(torch.int32)


class Tables(NamedTuple):
    """Rows sorted by the pair of their values, a table a pair.

    Attributes:
        address_bits: highest bits of a pair that are an address.
        offsets: (tables, 2^address_bits + 1) int32 where each bucket starts in its table's postings.
        postings: (tables, rows) int32, rising within a bucket.
        hashed: rows up to which the tables go.
    """

    address_bits: int
    offsets: Tensor
    postings: Tensor
    hashed: int

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return 4 * (self.offsets.numel() + self.postings.numel())


class Effort(NamedTuple):
    """Fixed sizes of a search.

    Attributes:
        depth: values of a function that are looked at.
        probes: buckets a query reads.
        capacity: candidates a query, at most 32768.
        rerank: candidates of the lowest distance that are kept, counted with those found twice.
    """

    depth: int
    probes: int
    capacity: int
    rerank: int


def build(functions: Functions, vectors: Tensor, alive: Tensor, count: int) -> Tables:
    """Sort the living of the first ``count`` rows into tables.

    Args:
        functions: of the tables.
        vectors: (rows, dim) float16.
        alive: (rows,) bool.
        count: rows.
    """
    device = vectors.device
    bits = 2 * functions.bits
    address_bits = min(bits, max(1, math.ceil(math.log2(max(_SPREAD * count, 2)))))
    step = max(1, _CELLS_AT_ONCE // (functions.functions * functions.width))
    parts = [
        functions.values(functions.project(vectors[first : min(first + step, count)])).to(torch.int16)
        for first in range(0, count, step)
    ]
    empty = torch.empty((0, functions.functions), dtype=torch.int16, device=device)
    values = torch.cat(parts) if parts else empty
    live = alive[:count].nonzero()[:, 0]
    offsets = torch.zeros((functions.tables, (1 << address_bits) + 1), dtype=torch.int32, device=device)
    postings = torch.empty((functions.tables, len(live)), dtype=torch.int32, device=device)
    for table in range(functions.tables):
        first = values[live, functions.first[table]].to(torch.int32)
        second = values[live, functions.second[table]].to(torch.int32)
        address = ((first << functions.bits) | second) >> (bits - address_bits)
        order = torch.sort(address, stable=True).indices
        postings[table] = live[order]
        sizes = torch.bincount(address, minlength=1 << address_bits)
        offsets[table, 1:] = sizes.cumsum(0)
    return Tables(address_bits, offsets, postings, count)


class Probes(NamedTuple):
    """Buckets that queries read.

    Attributes:
        first: (queries, probes) int64 where each starts among the postings of all tables.
        ends: (queries, probes) int32 where each ends among the candidates of its query.
    """

    first: Tensor
    ends: Tensor


def probe(functions: Functions, tables: Tables, queries: Tensor, effort: Effort, impl: Impl) -> Probes:
    """The cheapest buckets of each query.

    Args:
        functions, tables: of the index.
        queries: (queries, dim) float16.
        effort: depth and probes.
        impl: of the selection.
    """
    asked, depth = len(queries), min(effort.depth, functions.width)
    projected = functions.project(queries)
    flat = projected.view(asked * functions.functions, functions.width)
    place = lowest(flat, depth, impl=impl).to(torch.int64)
    found = flat.gather(1, place)
    size = (found.float().abs() * _SIZE_SCALE).to(torch.int32)
    margin = size.amax(1, keepdim=True) - size
    cost = ((margin * margin) >> _COST_SHIFT).clamp_max(_COST_LIMIT).to(torch.int16)
    cost = cost.view(asked, functions.functions, depth)
    value = (2 * place + (found < 0)).to(torch.int32).view(asked, functions.functions, depth)
    both = cost[:, functions.first, :, None] + cost[:, functions.second, None, :]
    chosen_pairs = lowest(both.view(asked, -1), effort.probes, impl=impl)
    value = value.view(asked, -1)
    if chosen(impl, queries) == "triton":
        from memory.index.cuda import buckets_triton

        return buckets_triton.read_offsets(functions, tables, chosen_pairs, value, depth)
    return read_offsets(functions, tables, chosen_pairs, value, depth)


def read_offsets(functions: Functions, tables: Tables, pairs: Tensor, value: Tensor, depth: int) -> Probes:
    """Where the buckets of some pairs of values lie.

    Args:
        functions, tables: of the index.
        pairs: (queries, probes) int32 table, first and second rank in one number; -1 for none.
        value: (queries, functions * depth) int32 values by rank.
        depth: ranks of a function.
    """
    none = pairs < 0
    pair = pairs.clamp_min(0).to(torch.int64)
    table = pair // (depth * depth)
    high = value.gather(1, functions.first[table] * depth + pair // depth % depth)
    low = value.gather(1, functions.second[table] * depth + pair % depth)
    address = ((high << functions.bits) | low) >> (2 * functions.bits - tables.address_bits)
    start = table * tables.offsets.shape[1] + address
    offsets = tables.offsets.view(-1)
    begin, end = offsets[start], offsets[start + 1]
    lengths = (end - begin).clamp_max(BUCKET_LIMIT).masked_fill(none, 0)
    first = table * tables.postings.shape[1] + begin
    return Probes(first, lengths.cumsum(1, dtype=torch.int32))


def candidates(
    functions: Functions,
    tables: Tables,
    codes: Tensor,
    queries: Tensor,
    packed: PackedQueries,
    effort: Effort,
    *,
    impl: Impl = "auto",
) -> Candidates:
    """Rows in the likely buckets of each query, those of the lowest distance, nearly each once.

    Args:
        functions, tables: of the index.
        codes: (rows, words) int32 packed signs.
        queries: (queries, dim) float16.
        packed: the same queries as codes.
        effort: fixed sizes.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Raises:
        ValueError: sizes that no program holds.
    """
    pairs = functions.tables * min(effort.depth, functions.width) ** 2
    if max(pairs, effort.capacity) > WIDTH_LIMIT:
        raise ValueError(
            f"tables * depth^2 and capacity must be at most {WIDTH_LIMIT}, got {pairs} and {effort.capacity}"
        )
    probes = probe(functions, tables, queries, effort, impl)
    overflow = (probes.ends[:, -1] - effort.capacity).clamp_min(0)
    if chosen(impl, codes) == "triton":
        from memory.index.cuda import buckets_triton

        rows, distances = buckets_triton.gather(probes, tables, codes, packed, effort.capacity)
        kept = lowest(distances, effort.rerank, impl=impl)
        listed = torch.where(kept < 0, -1, rows.gather(1, kept.clamp_min(0).to(torch.int64)))
        return Candidates(*buckets_triton.distinct(listed), overflow)
    rows, distances = gather(probes, tables, codes, packed, effort.capacity)
    kept = lowest(distances, effort.rerank, impl=impl)
    listed = torch.where(kept < 0, -1, rows.gather(1, kept.clamp_min(0).to(torch.int64)))
    return Candidates(*distinct(listed), overflow)


def gather(
    probes: Probes, tables: Tables, codes: Tensor, packed: PackedQueries, capacity: int
) -> tuple[Tensor, Tensor]:
    """Rows of the probed buckets, (queries, capacity) int32, and their int16 distances.

    Places behind the last row have distance 32767.
    """
    asked = len(probes.ends)
    slot = torch.arange(capacity, dtype=torch.int32, device=codes.device).expand(asked, capacity).contiguous()
    number = torch.searchsorted(probes.ends, slot, right=True)
    used = slot < probes.ends[:, -1:]
    number = number.clamp_max(probes.ends.shape[1] - 1)
    before = torch.where(number > 0, probes.ends.gather(1, (number - 1).clamp_min(0)), 0)
    entry = torch.where(used, probes.first.gather(1, number) + slot - before, 0)
    rows = torch.zeros_like(slot)
    if tables.postings.numel():
        rows = torch.where(used, tables.postings.view(-1)[entry], 0)
    distances = torch.empty((asked, capacity), dtype=torch.int16, device=codes.device)
    for query in range(asked):
        found = weighted_distance(codes[rows[query].long()], packed.signs[query], packed.planes[query])
        distances[query] = found.to(torch.int16)
    return rows, distances.masked_fill(~used, NEVER)


def hash_size(count: int) -> int:
    """Places of the table that finds rows listed twice."""
    return 1 << max(5, math.ceil(math.log2(2 * count)))


def distinct(listed: Tensor) -> tuple[Tensor, Tensor]:
    """Lists without most of what is there twice.

    The first entry of a place of a small hash table owns it; an equal row that comes later is left out. Rows
    that meet another row's place stay, so that some may remain twice.

    Args:
        listed: (queries, count) int32 rows, -1 for none.

    Returns:
        (queries, count) int32 rows in the same order, -1 behind them, and (queries,) int32 how many.
    """
    asked, count = listed.shape
    size = hash_size(count)
    used = listed >= 0
    slot = torch.arange(count, device=listed.device).expand(asked, count)
    hashed = ((listed.to(torch.int64) * _HASH) & 0xFFFFFFFF) >> (32 - size.bit_length() + 1)
    place = torch.where(used, hashed, 0)
    owners = torch.full((asked, size), count, dtype=torch.int64, device=listed.device)
    owners.scatter_reduce_(1, place, torch.where(used, slot, count), "amin")
    owner = owners.gather(1, place).clamp_max(count - 1)
    kept = used & ((owner == slot) | (listed.gather(1, owner) != listed))
    rank = kept.cumsum(1) - 1
    out = torch.full((asked, count + 1), -1, dtype=torch.int32, device=listed.device)
    out.scatter_(1, torch.where(kept, rank, count), torch.where(kept, listed, -1))
    return out[:, :count].contiguous(), kept.sum(1, dtype=torch.int32)
