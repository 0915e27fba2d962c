"""The best of a subset of rows: every one of them is compared."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.index.cuda.keys import Ranked, keys_of
from memory.index.cuda.rerank import rerank_top
from sparse_core.op import Impl

_CELLS_AT_ONCE = 1 << 25
#: More than k of each block are scored again, since products of matrices round otherwise.
_SPARE = 32


def exact_top(vectors: Tensor, queries: Tensor, rows: Tensor, k: int, *, impl: Impl = "auto") -> Ranked:
    """The k rows with the highest products.

    Args:
        vectors: (rows, dim) float16.
        queries: (queries, dim) float32.
        rows: (listed,) int64 rising rows to choose from.
        k: rows a query.
        impl: of the exact scores.
    """
    step = max(1024, _CELLS_AT_ONCE // max(vectors.shape[1], len(queries)))
    listed = []
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        keys = keys_of(queries @ vectors[some].float().T, some.expand(len(queries), len(some)))
        best = keys.topk(min(k + _SPARE, len(some)), dim=1).values
        listed.append((0xFFFFFFFF - (best & 0xFFFFFFFF)).to(torch.int32))
    empty = torch.empty((len(queries), 0), dtype=torch.int32, device=vectors.device)
    return rerank_top(vectors, queries, torch.cat(listed, 1) if listed else empty, k, impl=impl)
