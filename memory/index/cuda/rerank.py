"""Exact scores of listed rows, and the best of them."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.index.cuda.keys import MISSING, RankedRows, keys_of, unpack_keys
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

_CELLS_AT_ONCE = 1 << 24
#: Keys that one program ranks; also the most neighbours.
K_LIMIT = 1024

RERANK_TOP: Op[()] = Op(
    "rerank_top",
    __package__,
    by_triton(module=f"{__package__}.rerank_triton"),
    by_torch(module=__name__),
    gradient=False,
)


def rerank_top(
    vectors: Tensor,
    queries: Tensor,
    candidates: Tensor,
    k: int,
    *,
    alive: Tensor | None = None,
    lengths: Tensor | None = None,
    tail: tuple[int, int] = (0, 0),
    names: Tensor | None = None,
    impl: Impl = "auto",
) -> RankedRows:
    """Return the k candidates with the highest products; a row that is listed twice counts once.

    The order of the candidates does not matter.

    Args:
        vectors: (rows, dim) float16.
        queries: (queries, dim) float16 or float32; products are summed in float32.
        candidates: (queries, count) int32 rows, -1 for none.
        k: rows per query, at most 1024.
        alive: (rows,) bool rows that count; ``None``: all.
        lengths: (queries,) int32 places of ``candidates`` in use; ``None``: all. Programs after them do
            nothing.
        tail: first row and number of further rows to compare with every query; those after the last vector do
            not count.
        names: (rows,) int64 names to return for the rows; ``None``: their numbers.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Raises:
        ValueError: shapes do not fit.
        TypeError: a wrong dtype.
    """
    if vectors.dtype != torch.float16 or candidates.dtype != torch.int32:
        raise TypeError(
            f"vectors must be float16 and candidates int32, got {vectors.dtype} and {candidates.dtype}"
        )
    if vectors.dim() != 2 or queries.dim() != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"vectors and queries must share dim, got {tuple(vectors.shape)} and {tuple(queries.shape)}"
        )
    if candidates.dim() != 2 or len(candidates) != len(queries):
        raise ValueError(f"candidates must be ({len(queries)}, count), got {tuple(candidates.shape)}")
    if not 1 <= k <= K_LIMIT:
        raise ValueError(f"k must be from 1 to {K_LIMIT}, got {k}")
    if len(queries) == 0 or candidates.shape[1] + tail[1] == 0 or len(vectors) == 0:
        keys = torch.full((len(queries), k), MISSING, dtype=torch.int64, device=queries.device)
        return unpack_keys(keys)
    if RERANK_TOP.choose(impl, vectors.device) == "triton":
        kernels = RERANK_TOP.load("triton")
        best: RankedRows = kernels.rerank_top(vectors, queries, candidates, k, alive, lengths, tail, names)
        return best
    if lengths is not None:
        used = torch.arange(candidates.shape[1], device=candidates.device) < lengths[:, None]
        candidates = torch.where(used, candidates, -1)
    if tail[1]:
        further = torch.arange(tail[0], tail[0] + tail[1], dtype=torch.int32, device=candidates.device)
        further = torch.where(further < len(vectors), further, -1)
        candidates = torch.cat([candidates, further.expand(len(queries), -1)], 1)
    found = unpack_keys(best_keys(vectors, queries, candidates, k, alive))
    if names is None:
        return found
    return RankedRows(found.scores, names[found.rows.clamp_min(0)].masked_fill(found.rows < 0, -1))


def best_keys(
    vectors: Tensor, queries: Tensor, candidates: Tensor, k: int, alive: Tensor | None = None
) -> Tensor:
    """Return (queries, k) keys of the best candidates in plain torch, like :func:`rerank_top` for any k."""
    count = candidates.shape[1]
    used = candidates >= 0
    rows = torch.where(used, candidates, 0).to(torch.int64)
    if alive is not None:
        used &= alive[rows]
    out = torch.full((len(queries), k), MISSING, dtype=torch.int64, device=queries.device)
    step = max(1, _CELLS_AT_ONCE // (count * vectors.shape[1]))
    for first in range(0, len(queries), step):
        some = slice(first, first + step)
        # Products and sums run in a fixed order, so that equal rows have equal scores in every batch.
        scores = (vectors[rows[some]].float() * queries[some, None].float()).sum(2)
        keys = keys_of(scores, torch.where(used[some], rows[some], -1)).sort(1, descending=True).values
        keys[:, 1:] = torch.where(keys[:, 1:] == keys[:, :-1], MISSING, keys[:, 1:])
        best = keys.topk(min(k, count), dim=1).values
        out[some, : best.shape[1]] = best
    return out
