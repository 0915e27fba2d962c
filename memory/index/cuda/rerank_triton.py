"""Exact scores and the best of them in Triton: many programs score, then few rank whole numbers."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Rows of a step, rows that a program scores, keys that a program ranks.
_TILE, _LONG_SPAN, _KEYS = 32, 512, 4096
#: From this many rows in all, longer spans still occupy the device.
_MANY = 1 << 20


def best_keys(
    vectors: Tensor, queries: Tensor, candidates: Tensor, k: int, alive: Tensor | None, lengths: Tensor | None
) -> Tensor:
    """(queries, k) int64 falling keys; see :func:`memory.index.cuda.rerank.rerank_top`."""
    vectors, queries, candidates = vectors.contiguous(), queries.contiguous(), candidates.contiguous()
    asked, count = candidates.shape
    dim = vectors.shape[1]
    keys = torch.empty((asked, count), dtype=torch.int64, device=vectors.device)
    span = _LONG_SPAN if asked * count >= _MANY else _TILE
    score_kernel[(triton.cdiv(count, span), asked)](
        vectors,
        queries,
        candidates,
        vectors if alive is None else alive,
        candidates if lengths is None else lengths,
        keys,
        count,
        dim,
        ALIVE=alive is not None,
        LENGTHS=lengths is not None,
        DIM=triton.next_power_of_2(dim),
        TILE=_TILE,
        SPAN=span,
        num_warps=4,
    )
    while True:
        width = keys.shape[1]
        tile = min(triton.next_power_of_2(width), max(_KEYS, triton.next_power_of_2(2 * k)))
        pieces = triton.cdiv(width, tile)
        best = torch.empty((asked, pieces * k), dtype=torch.int64, device=vectors.device)
        top_kernel[(pieces, asked)](keys, best, width, k, TILE=tile, num_warps=max(1, min(8, tile // 256)))
        if pieces == 1:
            return best
        keys = best


@triton.jit
def score_kernel(
    vectors,
    queries,
    candidates,
    alive,
    lengths,
    keys,
    count,
    dim,
    ALIVE: tl.constexpr,
    LENGTHS: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Keys of a span of one query's candidates."""
    query = tl.program_id(1)
    part = tl.arange(0, DIM)
    values = tl.load(queries + query * dim + part, mask=part < dim, other=0.0).to(tl.float32)
    limit = count
    if LENGTHS:
        limit = tl.minimum(limit, tl.load(lengths + query))
    begin = tl.program_id(0) * SPAN
    for step in range(SPAN // TILE):
        place = begin + step * TILE + tl.arange(0, TILE)
        out = keys + query.to(tl.int64) * count + place
        if begin + step * TILE < limit:
            row = tl.load(candidates + query.to(tl.int64) * count + place, mask=place < limit, other=-1)
            used = row >= 0
            if ALIVE:
                used = used & (tl.load(alive + row, mask=used, other=0).to(tl.int32) != 0)
            start = vectors + row.to(tl.int64) * dim
            inside = used[:, None] & (part < dim)[None, :]
            stored = tl.load(start[:, None] + part[None, :], mask=inside, other=0.0).to(tl.float32)
            scores = tl.sum(stored * values[None, :], 1) + 0.0
            bits = scores.to(tl.int32, bitcast=True)
            ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
            key = (ordered << 32) | (0xFFFFFFFF - row.to(tl.int64))
            tl.store(out, tl.where(used, key, -0x8000000000000000), mask=place < count)
        else:
            nothing = tl.full((TILE,), -0x8000000000000000, tl.int64)
            tl.store(out, nothing, mask=place < count)


@triton.jit
def top_kernel(keys, best, width, k, TILE: tl.constexpr):
    """The k largest different keys of a piece, falling."""
    piece, query = tl.program_id(0), tl.program_id(1)
    missing = tl.full((TILE,), -0x8000000000000000, tl.int64)
    place = piece * TILE + tl.arange(0, TILE)
    found = tl.load(
        keys + query.to(tl.int64) * width + place, mask=place < width, other=-0x8000000000000000
    ).to(tl.int64)
    out = best + (query.to(tl.int64) * tl.num_programs(0) + piece) * k
    for rank in range(k):
        largest = tl.max(found, 0)
        tl.store(out + rank, largest)
        found = tl.where(found == largest, missing, found)
