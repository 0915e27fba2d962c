"""Scan of all packed codes: the rows that differ least from a query."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.index.cuda.bits import weighted_distance
from memory.index.cuda.implementation import check_words, chosen
from sparse_core.dispatch import Impl

_CELLS_AT_ONCE = 1 << 22
#: Largest sum of weights.
_DISTANCE_LIMIT = 16384


def hamming_top(
    codes: Tensor,
    queries: Tensor,
    count: int,
    *,
    planes: Tensor | None = None,
    alive: Tensor | None = None,
    impl: Impl = "auto",
) -> Tensor:
    """Rows with the ``count`` lowest (distance, row), without a read-back: it can be captured in a graph.

    Args:
        codes: (words, rows) int32 packed bits, a word of all rows after the other, so that reads coalesce.
        queries: (queries, words) int32.
        count: rows a query.
        planes: (queries, planes, words) int32 bit planes of weights, see :mod:`memory.index.cuda.bits`;
            ``None``: every bit counts one, the Hamming distance.
        alive: (rows,) bool; ``None``: all of them.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Returns:
        (queries, count) int32 rows in rising order, -1 behind them where there are fewer.

    Raises:
        ValueError: shapes do not fit.
        TypeError: other types.
    """
    check_words("codes", codes, 2)
    check_words("queries", queries, 2)
    words, rows = codes.shape
    if queries.shape[1] != words:
        raise ValueError(f"queries must have {words} words as the codes have, got {queries.shape[1]}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if planes is None:
        planes = torch.full_like(queries, -1)[:, None, :]
    check_words("planes", planes, 3)
    if planes.shape[0] != len(queries) or planes.shape[2] != words:
        raise ValueError(f"planes must be ({len(queries)}, planes, {words}), got {tuple(planes.shape)}")
    if 32 * words * ((1 << planes.shape[1]) - 1) >= _DISTANCE_LIMIT:
        raise ValueError(f"{words} words in {planes.shape[1]} planes give distances over {_DISTANCE_LIMIT}")
    if alive is not None and (alive.shape != (rows,) or alive.dtype != torch.bool):
        raise ValueError(f"alive must be ({rows},) bool, got {tuple(alive.shape)} {alive.dtype}")
    if rows == 0 or len(queries) == 0:
        return torch.full((len(queries), count), -1, dtype=torch.int32, device=codes.device)
    if chosen(impl, codes) == "triton":
        from memory.index.cuda import scan_triton

        return scan_triton.hamming_top(codes, queries, count, planes, alive)
    return _reference(codes, queries, count, planes, alive)


def _reference(codes: Tensor, queries: Tensor, count: int, planes: Tensor, alive: Tensor | None) -> Tensor:
    words, rows = codes.shape
    out = torch.full((len(queries), count), -1, dtype=torch.int32, device=codes.device)
    by_row = codes.T.contiguous()
    # A removed row is further than any other.
    gone = torch.zeros(rows, dtype=torch.bool, device=codes.device) if alive is None else ~alive
    step = max(1, _CELLS_AT_ONCE // (rows * words))
    for first in range(0, len(queries), step):
        some = slice(first, first + step)
        distance = weighted_distance(by_row[None], queries[some, None], planes[some, None])
        distance = distance.masked_fill(gone, _DISTANCE_LIMIT)
        keys = (distance.to(torch.int64) << 32) | torch.arange(rows, device=codes.device)
        best = keys.topk(min(count, rows), dim=1, largest=False).values
        place = torch.where(best >> 32 >= _DISTANCE_LIMIT, rows, best & 0xFFFFFFFF).sort(1).values
        out[some, : place.shape[1]] = torch.where(place == rows, -1, place).to(torch.int32)
    return out
