"""Patterns chosen from the queries and keys themselves, by scores of pooled blocks.

Pooling queries and keys to one vector a block and keeping the best-scored blocks is the selection of
"Quest" (Tang et al. 2024) and "SeerAttention" (Gao et al. 2024) without their learned or bounding parts;
keeping what reaches a share of the probability is the rule of top-p sampling (Holtzman et al. 2020). Causal
patterns always keep the blocks on the diagonal, as "MoBA" does (Lu et al. 2025): without them the first
queries of a block row could be left with no key at all.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.blocks.plan import ROW_LENGTHS
from sparse_core.attention.grid import FULL, BlockGrid
from sparse_core.attention.operands import (
    AttentionShape,
    arithmetic_dtype,
    check_queries_and_keys,
    default_scale,
)
from sparse_core.attention.pattern import BlockPattern

# Probabilities are added up as whole multiples of 2^-40, so that the order of the sum does not matter.
_UNITS = 1 << 40


@torch.no_grad()
def top_k_blocks(
    q: Tensor, k: Tensor, keep: float, *, block_size: int = 64, causal: bool = False
) -> BlockPattern:
    """For each block row the ``round(keep * blocks)`` key blocks whose mean scores best with the mean query.

    Of equal scores the lower column is kept. A pattern belongs to a head, not to a batch entry: scores are
    averaged over the batch. The selection is not differentiated: gradients of the attention are those for a
    fixed pattern. Nothing waits for the device, except the first causal call for new lengths.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        keep: share of the blocks that a row keeps, in (0, 1]; at least one block.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: drop keys after the query, with the sequences aligned at their ends. The share is then that
            of the blocks which the row may see, and those on the diagonal are always among the kept.

    Returns:
        A pattern with ``heads`` heads.

    Raises:
        TypeError: q or k is not floating, or their types differ.
        ValueError: shapes, devices or block size do not fit, or ``keep`` is outside (0, 1].
    """
    _check_share("keep", keep)
    shape, grid = _checked(q, k, block_size)
    dtype = arithmetic_dtype(q.dtype)
    scores = _scores(_pooled(q, block_size, dtype), _pooled(k, block_size, dtype), shape).mean(dim=0)
    if not causal:
        return _equal_rows_pattern(grid, scores, _kept_in(grid, 0, keep, causal))
    counts = [_kept_in(grid, row, keep, causal) for row in range(grid.rows)]
    widest, total = max(counts), grid.heads * sum(counts)
    # The same counts on the device, without a copy that would wait for it.
    seen, crossed = _blocks_seen(grid, causal, q.device)
    columns = seen.sum(dim=1)
    count = (keep * columns.double()).round().long().clamp(min=1).maximum(crossed.sum(dim=1)).minimum(columns)
    # A radix sort would tell -0.0 from 0.0.
    scores = (scores.nan_to_num(nan=torch.finfo(dtype).min) + 0.0).masked_fill(~seen, -math.inf)
    scores = scores.masked_fill(crossed, math.inf)
    best = torch.sort(scores, dim=2, descending=True, stable=True).indices[:, :, :widest]
    best = best.masked_fill(torch.arange(widest, device=q.device) >= count[:, None], grid.columns)
    best = torch.sort(best, dim=2).values.flatten(0, 1)
    count = count.repeat(grid.heads)
    rows = torch.arange(len(count), device=q.device)
    unit = torch.repeat_interleave(rows, count, output_size=total)
    entry = torch.arange(total, device=q.device) - (count.cumsum(0) - count)[unit]
    pattern = _pattern(grid, count, unit % grid.rows, best[unit, entry], causal)
    pattern.plans[ROW_LENGTHS] = torch.tensor(counts * grid.heads)
    return pattern


class _EqualRows(NamedTuple):
    """What patterns have in common whose rows all have equally many full blocks."""

    row_ptr: Tensor
    partial: Tensor
    masks: Tensor
    lengths: Tensor


def _equal_rows(grid: BlockGrid, count: int, device: torch.device) -> _EqualRows:
    units = grid.heads * grid.rows
    first = torch.arange(0, (units + 1) * count, max(count, 1), device=device, dtype=torch.int32)
    return _EqualRows(
        first.as_strided((grid.heads, grid.rows + 1), (grid.rows, 1)).contiguous(),
        torch.full((units * count,), FULL, dtype=torch.int32, device=device),
        torch.zeros((0, grid.block_size, grid.block_size), dtype=torch.bool, device=device),
        torch.full((units,), count),
    )


_kept_equal_rows = lru_cache(maxsize=64)(_equal_rows)


def _equal_rows_pattern(grid: BlockGrid, scores: Tensor, count: int) -> BlockPattern:
    """The ``count`` best columns of each row, (heads, block rows, block columns) scores."""
    # A radix sort would tell -0.0 from 0.0.
    scores = scores.nan_to_num(nan=torch.finfo(scores.dtype).min) + 0.0
    best = torch.sort(scores, dim=2, descending=True, stable=True).indices[:, :, :count]
    best = torch.sort(best, dim=2).values
    # What is made while a graph is captured has its numbers in that graph only.
    capturing = scores.is_cuda and torch.cuda.is_current_stream_capturing()
    common = (_equal_rows if capturing else _kept_equal_rows)(grid, count, scores.device)
    pattern = BlockPattern(
        common.row_ptr,
        best.flatten().int(),
        common.partial,
        common.masks,
        query_length=grid.query_length,
        key_length=grid.key_length,
        block_size=grid.block_size,
    )
    pattern.plans[ROW_LENGTHS] = common.lengths
    return pattern


@torch.no_grad()
def dynamic_blocks(
    q: Tensor,
    k: Tensor,
    *,
    mass: float = 0.95,
    block_size: int = 64,
    causal: bool = False,
    scale: float | None = None,
    score_dtype: torch.dtype = torch.bfloat16,
) -> BlockPattern:
    """For each block row the fewest key blocks whose estimated probabilities reach ``mass``.

    The estimate is the softmax, over the blocks of a row, of the scores of mean queries and mean keys, which
    are multiplied in low precision; a block counts as often as it has keys. Probabilities are averaged over
    the batch. Of equal ones the lower column is kept, and the result repeats to the bit. The selection is
    not differentiated. How many blocks are kept is known only afterwards, so this waits for the device once.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        mass: share of the probability to reach, in (0, 1]; 1 keeps every block.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: as in :func:`top_k_blocks`.
        scale: of the scores; 1 / sqrt(dim) by default.
        score_dtype: of the product of the means.

    Returns:
        A pattern with ``heads`` heads; each row that may see a block has at least one.

    Raises:
        TypeError: q or k is not floating, their types differ, or ``score_dtype`` is not floating.
        ValueError: shapes, devices or block size do not fit, or ``mass`` is outside (0, 1].
    """
    _check_share("mass", mass)
    if not score_dtype.is_floating_point:
        raise TypeError(f"score_dtype must be floating point, got {score_dtype}")
    shape, grid = _checked(q, k, block_size)
    dtype = arithmetic_dtype(q.dtype)
    q_means, k_means = (_pooled(tensor, block_size, dtype).to(score_dtype) for tensor in (q, k))
    scores = _scores(q_means, k_means, shape).to(dtype) * default_scale(scale, shape.dim)
    keys = grid.key_length - torch.arange(0, grid.key_length, block_size, device=q.device)
    seen, crossed = _blocks_seen(grid, causal, q.device)
    scores = (scores + keys.clamp(max=block_size).to(dtype).log()).masked_fill(~seen, -math.inf)
    probability = torch.softmax(scores, dim=3).mean(dim=0).nan_to_num(0.0)
    units = (probability * _UNITS).round().long().clamp(min=1).masked_fill(~seen, 0)
    # Those on the diagonal come first, whatever their probability.
    order = torch.sort(units + crossed * 2 * _UNITS, dim=2, descending=True, stable=True).indices
    ordered = units.gather(2, order)
    before = ordered.cumsum(dim=2) - ordered
    needed = before.double() < mass * ordered.sum(dim=2, keepdim=True).double()
    kept = torch.zeros_like(needed).scatter(2, order, needed) & seen | crossed
    _, row, chosen = kept.nonzero().unbind(dim=1)
    return _pattern(grid, kept.sum(dim=2).flatten(), row, chosen, causal)


def _checked(q: Tensor, k: Tensor, block_size: int) -> tuple[AttentionShape, BlockGrid]:
    shape = check_queries_and_keys(q, k)
    if not shape.batch:
        raise ValueError(f"q must have at least one batch entry to select by, got shape {tuple(q.shape)}")
    grid = BlockGrid(shape.heads, shape.query_length, shape.key_length, block_size)
    grid.check()
    return shape, grid


def _check_share(name: str, share: float) -> None:
    if not 0.0 < share <= 1.0:
        raise ValueError(f"{name} must be above 0 and at most 1, got {share}")


def _pooled(rows: Tensor, block_size: int, dtype: torch.dtype) -> Tensor:
    """Means over blocks: (batch, heads, length, dim) to (batch, heads, blocks, dim)."""
    whole, rest = divmod(rows.shape[2], block_size)
    blocks = rows[:, :, : whole * block_size].unflatten(2, (whole, block_size))
    means: Tensor = blocks.sum(dim=3, dtype=dtype) / block_size
    if not rest:
        return means
    last = rows[:, :, whole * block_size :].sum(dim=2, keepdim=True, dtype=dtype) / rest
    return torch.cat([means, last], dim=2)


def _scores(q: Tensor, k: Tensor, shape: AttentionShape) -> Tensor:
    """(batch, heads, block rows, block columns) products of pooled queries and keys."""
    with torch.autocast(q.device.type, enabled=False):
        grouped = q.reshape(shape.batch, shape.key_heads, shape.group, *q.shape[2:])
        return (grouped @ k.unsqueeze(2).mT).flatten(1, 2)


def _columns_seen(grid: BlockGrid, row: int) -> int:
    """Block columns of which the last query of a block row may see a key, when causal."""
    last_query = min((row + 1) * grid.block_size, grid.query_length) - 1
    last_key = last_query + grid.key_length - grid.query_length
    return max(0, last_key // grid.block_size + 1)


def _columns_crossed(grid: BlockGrid, row: int) -> list[int]:
    """Of these columns, those of which the first query does not see every key."""
    size, seen = grid.block_size, _columns_seen(grid, row)
    last_key_seen = row * size + grid.key_length - grid.query_length
    # The diagonal crosses a row in no more than its last two columns that are seen.
    last_keys = {c: min((c + 1) * size, grid.key_length) - 1 for c in range(max(0, seen - 2), seen)}
    return [column for column, last_key in last_keys.items() if last_key > last_key_seen]


def _kept_in(grid: BlockGrid, row: int, keep: float, causal: bool) -> int:
    """Blocks that a row keeps."""
    columns = _columns_seen(grid, row) if causal else grid.columns
    crossed = len(_columns_crossed(grid, row)) if causal else 0
    return min(columns, max(1, round(keep * columns), crossed))


def _blocks_seen(grid: BlockGrid, causal: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """(block rows, block columns) bool: blocks that may be kept, and those on the diagonal, which must be."""
    if not causal:
        seen = torch.ones((grid.rows, grid.columns), dtype=torch.bool, device=device)
        return seen, torch.zeros_like(seen)
    size, offset = grid.block_size, grid.key_length - grid.query_length
    row = torch.arange(grid.rows, device=device)[:, None]
    column = torch.arange(grid.columns, device=device)
    last_query = ((row + 1) * size).clamp(max=grid.query_length) - 1
    last_key = ((column + 1) * size).clamp(max=grid.key_length) - 1
    seen = column * size <= last_query + offset
    return seen, seen & (last_key > row * size + offset)


def _pattern(grid: BlockGrid, count: Tensor, row: Tensor, column: Tensor, causal: bool) -> BlockPattern:
    """The pattern of blocks that are in order; ``count`` (heads * block rows,) says where rows end."""
    size = grid.block_size
    ends = count.cumsum(0).reshape(grid.heads, grid.rows)
    starts = torch.cat([ends.new_zeros(1), ends[:-1, -1]])
    partial = torch.full_like(column, FULL)
    masks = torch.zeros((0, size, size), dtype=torch.bool, device=column.device)
    if causal:
        found = _causal_masks(grid, column.device)
        offset = grid.key_length - grid.query_length
        last_key = ((column + 1) * size).clamp(max=grid.key_length) - 1
        crossed = last_key > row * size + offset
        below = (row - column) * size + offset < 0
        partial = torch.where(crossed, found.number[below * 4 + grid.edges(row, column)], partial)
        masks = found.masks
    return BlockPattern(
        torch.cat([starts[:, None], ends], dim=1).int(),
        column.int(),
        partial.int(),
        masks,
        query_length=grid.query_length,
        key_length=grid.key_length,
        block_size=size,
    )


class _CausalMasks(NamedTuple):
    """Masks of the blocks that the diagonal crosses.

    A block's code is its edge (see :meth:`BlockGrid.edges`), and 4 more when its first query does not see
    into it.
    """

    masks: Tensor  # (masks, block_size, block_size) bool
    number: Tensor  # (8,) int64, mask of each code


@lru_cache(maxsize=64)
def _causal_masks(grid: BlockGrid, device: torch.device) -> _CausalMasks:
    size, offset = grid.block_size, grid.key_length - grid.query_length
    crossed = [(row, column) for row in range(grid.rows) for column in _columns_crossed(grid, row)]
    row, column = torch.tensor(crossed, dtype=torch.long).reshape(-1, 2).unbind(dim=1)
    below = (row - column) * size + offset < 0
    codes = torch.unique(below * 4 + grid.edges(row, column))
    place = torch.arange(size)
    # The first query of a crossed block sees one key of it and so many more, or, when negative, none.
    ahead = torch.where(codes >= 4, offset % size - size, offset % size)
    triangles = place <= place[:, None] + ahead[:, None, None]
    masks, which = torch.unique(triangles & grid.inside("cpu")[codes % 4], dim=0, return_inverse=True)
    number = torch.full((8,), FULL)
    number[codes] = which
    return _CausalMasks(masks.to(device), number.to(device))
