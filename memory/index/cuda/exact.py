"""Exact search of a subset of rows, which compares each of them."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.index.cuda.keys import RankedRows, keys_of, unpack_keys
from memory.index.cuda.rerank import K_LIMIT, best_keys, rerank_top
from sparse_core.kernels.op import Impl

_CELLS_AT_ONCE = 1 << 25
#: Rows scored again beyond k, because products of matrices round differently.
_SPARE = 32


def exact_top(vectors: Tensor, queries: Tensor, rows: Tensor, k: int, *, impl: Impl = "auto") -> RankedRows:
    """Return the k rows with the highest products, in plain torch if k exceeds the kernels' limit.

    Args:
        vectors: (rows, dim) float16.
        queries: (queries, dim) float32.
        rows: (listed,) int64 rising rows to choose from; a contiguous range is not gathered.
    """
    step = max(1024, _CELLS_AT_ONCE // max(vectors.shape[1], len(queries)))
    best = torch.empty((len(queries), 0), dtype=torch.int64, device=vectors.device)
    start = int(rows[0]) if len(rows) else 0
    whole = len(rows) > 0 and int(rows[-1]) - start == len(rows) - 1
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        part = vectors[start + first : start + first + len(some)] if whole else vectors[some]
        keys = keys_of(queries @ part.float().T, some.expand(len(queries), len(some)))
        best = torch.cat([best, keys.topk(min(k + _SPARE, len(some)), dim=1).values], 1)
        best = best.topk(min(k + _SPARE, best.shape[1]), dim=1).values
    listed = (0xFFFFFFFF - (best & 0xFFFFFFFF)).to(torch.int32)
    if k > K_LIMIT:
        return unpack_keys(best_keys(vectors, queries, listed, k))
    return rerank_top(vectors, queries, listed, k, impl=impl)
