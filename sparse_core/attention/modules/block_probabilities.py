"""Attention probability of each block."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparse_core.attention.masked_arithmetic import CHUNK_SCORES, masked_softmax, zero_padding
from sparse_core.attention.operands import (
    arithmetic_dtype,
    check_queries_and_keys,
    check_ragged,
    default_scale,
)
from sparse_core.attention.patterns.grid import BlockGrid


class TokenBlocks:
    """Rows in blocks, for pooling over the tokens that exist.

    Args:
        rows: (batch, heads, length, dim) floating; padding may hold any value.
        lengths: (batch,) int64, true lengths of sequences padded at the end, or None.

    Attributes:
        count: (batch, blocks) int64, tokens that exist.
    """

    def __init__(self, rows: Tensor, lengths: Tensor | None, size: int, dtype: torch.dtype) -> None:
        length = rows.shape[2]
        rest = -length % size
        rows = torch.nn.functional.pad(rows, (0, 0, 0, rest)) if rest else rows
        self._dtype = dtype
        self._rows = rows.unflatten(2, (-1, size))
        place = torch.arange(rows.shape[2], device=rows.device)
        limit = place.new_full((rows.shape[0],), length) if lengths is None else lengths
        exists = (place < limit[:, None]).unflatten(1, (-1, size))
        self.count: Tensor = exists.sum(dim=2)
        self._missing = ~exists[:, None, :, :, None] if rest or lengths is not None else None

    def mean(self) -> Tensor:
        """Return means (batch, heads, blocks, dim); zeros for a block without tokens."""
        rows = self._rows if self._missing is None else self._rows.masked_fill(self._missing, 0.0)
        total = rows.sum(dim=3, dtype=self._dtype)
        mean: Tensor = total / self.count.clamp(min=1)[:, None, :, None]
        return mean

    def extreme(self, sign: int) -> Tensor:
        """Return maxima (sign 1) or minima (-1), (batch, heads, blocks, dim); zeros without tokens."""
        rows = self._rows
        if self._missing is not None:
            rows = rows.masked_fill(self._missing, -sign * math.inf)
        found: Tensor = rows.amax(dim=3) if sign > 0 else rows.amin(dim=3)
        return found.to(self._dtype).masked_fill((self.count == 0)[:, None, :, None], 0.0)


@torch.no_grad()
def block_probabilities(
    q: Tensor,
    k: Tensor,
    *,
    block_size: int = 64,
    causal: bool = False,
    scale: float | None = None,
    query_lengths: Tensor | None = None,
    key_lengths: Tensor | None = None,
) -> Tensor:
    """Return the attention probability of each block: summed over its keys, averaged over its queries.

    Exact, in chunks of bounded memory.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: drop keys after the query, with the padded sequences aligned at their ends.
        scale: of the scores; 1 / sqrt(dim) by default.
        query_lengths, key_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end.

    Returns:
        (batch, heads, block rows, block columns) float32 (float64 for float64). Each row sums to 1, or is 0
        if no query of the row has a key.
    """
    shape = check_queries_and_keys(q, k)
    grid = BlockGrid(shape.heads, shape.query_length, shape.key_length, block_size)
    grid.check()
    queries = check_ragged(query_lengths, shape.batch, shape.query_length, q.device, name="query_lengths")
    keys = check_ragged(key_lengths, shape.batch, shape.key_length, q.device, name="key_lengths")
    dtype, device = arithmetic_dtype(q.dtype), q.device
    # A unit is a key head of a sequence, with its group of query heads.
    units = shape.batch * shape.key_heads
    q_units = q.reshape(units, shape.group, shape.query_length, shape.dim)
    k_units = k.reshape(units, 1, shape.key_length, shape.dim)
    if queries is None:
        queries = torch.full((shape.batch,), shape.query_length, device=device)
    if keys is None:
        keys = torch.full((shape.batch,), shape.key_length, device=device)
    queries, keys = (lengths.repeat_interleave(shape.key_heads) for lengths in (queries, keys))
    limit = CHUNK_SCORES["cuda" if q.is_cuda else "cpu"]
    row_scores = shape.group * block_size * shape.key_length
    units_at_once = min(units, max(1, limit // row_scores))
    tokens_at_once = max(1, limit // (row_scores * units_at_once)) * block_size
    found = torch.empty((units, shape.group, grid.rows, grid.columns), dtype=dtype, device=device)
    for unit in range(0, units, units_at_once):
        some = slice(unit, unit + units_at_once)
        k_some = zero_padding(k_units[some].to(dtype) * default_scale(scale, shape.dim), keys[some])
        for first in range(0, shape.query_length, tokens_at_once):
            q_some = q_units[some, :, first : first + tokens_at_once].to(dtype)
            chunk = _probabilities_of_rows(q_some, k_some, queries[some], keys[some], first, grid, causal)
            row = first // block_size
            found[some, :, row : row + chunk.shape[2]] = chunk
    return found.reshape(shape.batch, shape.heads, grid.rows, grid.columns)


def _probabilities_of_rows(
    q: Tensor,
    k: Tensor,
    query_lengths: Tensor,
    key_lengths: Tensor,
    first: int,
    grid: BlockGrid,
    causal: bool,
) -> Tensor:
    """Return (units, group, block rows of q, block columns); ``first`` is the position of the first query."""
    size = grid.block_size
    query = torch.arange(first, first + q.shape[2], device=q.device)[:, None]
    key = torch.arange(grid.key_length, device=q.device)
    allowed = (query < query_lengths[:, None, None]) & (key < key_lengths[:, None, None])
    if causal:
        allowed = allowed & (key <= query + grid.key_length - grid.query_length)
    q = q.masked_fill(query >= query_lengths[:, None, None, None], 0.0)
    with torch.autocast(q.device.type, enabled=False):
        weights, total, _ = masked_softmax(q @ k.mT, allowed[:, None])
    weights = _sum_neighbours(weights / total, 3, size)
    counts = _sum_neighbours(allowed.any(dim=2)[:, None, :, None].to(q.dtype), 2, size)
    return _sum_neighbours(weights, 2, size) / counts.clamp(min=1.0)


def _sum_neighbours(values: Tensor, dim: int, size: int) -> Tensor:
    """Sum each ``size`` neighbours along ``dim``."""
    rest = -values.shape[dim] % size
    padding = [0, 0] * (values.ndim - 1 - dim) + [0, rest]
    padded = torch.nn.functional.pad(values, padding) if rest else values
    sums: Tensor = padded.unflatten(dim, (-1, size)).sum(dim=dim + 1)
    return sums
