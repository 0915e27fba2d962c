"""Exact scores and their maxima in Triton: many programs score, then few rank integer keys."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from memory.index.cuda.keys import RankedRows

#: Rows per step; constant, so that a row's score does not depend on the batch.
_TILE = 8
#: Keys that one program ranks. If there are more, several programs rank parts first.
_KEYS = 4096
#: From this many rows on, programs that score more rows each still occupy the device.
_MANY = 1 << 16


def rerank_top(
    vectors: Tensor,
    queries: Tensor,
    candidates: Tensor,
    k: int,
    alive: Tensor | None,
    lengths: Tensor | None,
    tail: tuple[int, int],
    names: Tensor | None,
) -> RankedRows:
    """See :func:`memory.index.cuda.rerank.rerank_top`."""
    vectors, queries, candidates = vectors.contiguous(), queries.contiguous(), candidates.contiguous()
    asked, device = len(queries), vectors.device
    listed, dim = candidates.shape[1], vectors.shape[1]
    width = listed + tail[1]
    keys = torch.empty((asked, width), dtype=torch.int64, device=device)
    span = 8 * _TILE if asked * width >= _MANY else _TILE
    score_kernel[(triton.cdiv(width, span), asked)](
        vectors,
        queries,
        candidates,
        vectors if alive is None else alive,
        candidates if lengths is None else lengths,
        keys,
        listed,
        width,
        tail[0] - listed,
        len(vectors),
        dim,
        ALIVE=alive is not None,
        LENGTHS=lengths is not None,
        DIM=triton.next_power_of_2(dim),
        TILE=_TILE,
        SPAN=span,
        num_warps=2,
    )
    scores = torch.empty((asked, k), dtype=torch.float32, device=device)
    rows = torch.empty((asked, k), dtype=torch.int64, device=device)
    while True:
        width = keys.shape[1]
        tile = min(max(32, triton.next_power_of_2(width)), max(_KEYS, triton.next_power_of_2(2 * k)))
        pieces = triton.cdiv(width, tile)
        best = torch.empty((asked, pieces * k), dtype=torch.int64, device=device) if pieces > 1 else keys
        top_kernel[(pieces, asked)](
            keys,
            best,
            scores,
            rows,
            rows if names is None else names,
            width,
            k,
            LAST=pieces == 1,
            NAMES=names is not None,
            TILE=tile,
            num_warps=max(1, tile // 1024),
        )
        if pieces == 1:
            return RankedRows(scores, rows)
        keys = best


@triton.jit
def score_kernel(
    vectors,
    queries,
    candidates,
    alive,
    lengths,
    keys,
    listed,
    width,
    offset,
    rows,
    dim,
    ALIVE: tl.constexpr,
    LENGTHS: tl.constexpr,
    DIM: tl.constexpr,
    TILE: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Keys of a span of one query's candidates; from ``listed`` on, rows are places plus an offset."""
    query = tl.program_id(1).to(tl.int64)
    part = tl.arange(0, DIM)
    values = tl.load(queries + query * dim + part, mask=part < dim, other=0.0).to(tl.float32)
    limit = listed
    if LENGTHS:
        limit = tl.minimum(tl.load(lengths + query), listed)
    begin = tl.program_id(0) * SPAN
    for step in range(SPAN // TILE):
        place = begin + step * TILE + tl.arange(0, TILE)
        row = tl.load(candidates + query * listed + place, mask=place < limit, other=-1)
        further = (place >= listed) & (place < width) & (place + offset < rows)
        row = tl.where(further, place + offset, row)
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
        tl.store(keys + query * width + place, tl.where(used, key, -0x8000000000000000), mask=place < width)


@triton.jit
def top_kernel(
    keys,
    best,
    scores,
    rows,
    names,
    width,
    k,
    LAST: tl.constexpr,
    NAMES: tl.constexpr,
    TILE: tl.constexpr,
):
    """The k largest different keys of a piece, falling; of the last piece what they stand for."""
    piece, query = tl.program_id(0), tl.program_id(1).to(tl.int64)
    missing = tl.full((TILE,), -0x8000000000000000, tl.int64)
    place = piece * TILE + tl.arange(0, TILE)
    found = tl.load(keys + query * width + place, mask=place < width, other=-0x8000000000000000).to(tl.int64)
    for rank in range(k):
        largest = tl.max(found, 0)
        if LAST:
            absent = largest == -0x8000000000000000
            ordered = (largest >> 32).to(tl.int32)
            score = tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).to(tl.float32, bitcast=True)
            row = 0xFFFFFFFF - (largest & 0xFFFFFFFF)
            if NAMES:
                row = tl.load(names + tl.where(absent, 0, row))
            tl.store(scores + query * k + rank, tl.where(absent, float("-inf"), score))
            tl.store(rows + query * k + rank, tl.where(absent, -1, row))
        else:
            tl.store(best + (query * tl.num_programs(0) + piece) * k + rank, largest)
        found = tl.where(found == largest, missing, found)
