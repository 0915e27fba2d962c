"""Patterns chosen from queries and keys by the scores of pooled blocks.

Mean queries and keys per block are scored, and the best blocks kept, as in "Quest" (Tang et al. 2024) and
"SeerAttention" (Gao et al. 2024), without their learned or bounding parts. :func:`dynamic_blocks` uses the
rule of top-p sampling (Holtzman et al. 2020). Causal patterns always keep the blocks on the diagonal, as
"MoBA" does (Lu et al. 2025), so that every query has a key.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparse_core.attention.best_blocks import best_blocks, row_offsets, visible_blocks
from sparse_core.attention.operands import (
    AttentionShape,
    arithmetic_dtype,
    check_queries_and_keys,
    check_share,
    default_scale,
)
from sparse_core.attention.patterns.grid import BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern

# Probabilities are summed as integers, in units of 2^-40: the order of the sum does not matter.
_UNITS = 1 << 40


@torch.no_grad()
def top_k_blocks(
    q: Tensor,
    k: Tensor,
    keep: float,
    *,
    block_size: int = 64,
    causal: bool = False,
    per_key_head: bool = False,
) -> BlockPattern:
    """Keep the ``round(keep * blocks)`` key blocks per block row whose mean keys best match its mean query.

    Ties keep the lower column. Scores are averaged over the batch. The selection has no gradient: attention
    has the gradients of a fixed pattern. Only the first causal call for new lengths waits for the device.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        keep: share of the blocks that a row keeps, in (0, 1]; at least one block.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        causal: drop keys after the query, with the sequences aligned at their ends. ``keep`` is then a share
            of the visible blocks, and those on the diagonal are always kept.
        per_key_head: the heads of a key head keep the same blocks, those with the best mean score, as in
            "Native Sparse Attention" (Yuan et al. 2025).

    Returns:
        A pattern with ``heads`` heads.

    Raises:
        TypeError: q or k is not floating, or their types differ.
        ValueError: shapes, devices or block size do not match, or ``keep`` is outside (0, 1].
    """
    check_share("keep", keep)
    _, grid = _check(q, k, block_size)
    return best_blocks(block_scores(q, k, block_size, per_key_head=per_key_head), grid, keep, causal=causal)


def block_scores(q: Tensor, k: Tensor, block_size: int, *, per_key_head: bool = False) -> Tensor:
    """Multiply the mean queries and mean keys of blocks, and average over the batch.

    Args:
        q, k, block_size, per_key_head: as of :func:`top_k_blocks`, checked.

    Returns:
        (heads or key heads, block rows, block columns), float32 for types of 16 bits.
    """
    dtype = arithmetic_dtype(q.dtype)
    q_means, k_means = (_pool(tensor, block_size, dtype) for tensor in (q, k))
    if per_key_head:
        q_means = q_means.unflatten(1, (k.shape[1], -1)).mean(dim=2)
    scores = _score(q_means, k_means)
    return scores[0] if len(scores) == 1 else scores.mean(dim=0)


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
    """Keep the fewest key blocks per block row whose estimated probabilities reach ``mass``.

    The estimate multiplies mean queries and mean keys in low precision and takes the softmax over the blocks
    of a row, each weighted by its number of keys. Probabilities are averaged over the batch. Ties keep the
    lower column, and the result is bitwise reproducible. The selection has no gradient. Each call waits for
    the device once, because the number of blocks is not known before.

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
        ValueError: shapes, devices or block size do not match, or ``mass`` is outside (0, 1].
    """
    check_share("mass", mass)
    if not score_dtype.is_floating_point:
        raise TypeError(f"score_dtype must be floating point, got {score_dtype}")
    shape, grid = _check(q, k, block_size)
    dtype = arithmetic_dtype(q.dtype)
    q_means, k_means = (_pool(tensor, block_size, dtype).to(score_dtype) for tensor in (q, k))
    scores = _score(q_means, k_means).to(dtype) * default_scale(scale, shape.dim)
    keys = grid.key_length - torch.arange(0, grid.key_length, block_size, device=q.device)
    visible = visible_blocks(grid, causal, q.device)
    scores = (scores + keys.clamp(max=block_size).to(dtype).log()).masked_fill(~visible.seen, -math.inf)
    probability = torch.softmax(scores, dim=3).mean(dim=0).nan_to_num(0.0)
    units = (probability * _UNITS).round().long().clamp(min=1).masked_fill(~visible.seen, 0)
    # Blocks on the diagonal sort first, because they are always kept.
    order = torch.sort(units + visible.crossed * 2 * _UNITS, dim=2, descending=True, stable=True).indices
    ordered = units.gather(2, order)
    before = ordered.cumsum(dim=2) - ordered
    needed = before.double() < mass * ordered.sum(dim=2, keepdim=True).double()
    kept = torch.zeros_like(needed).scatter(2, order, needed) & visible.seen | visible.crossed
    _, row, column = kept.nonzero().unbind(dim=1)
    row_ptr = row_offsets(kept.sum(dim=2).flatten(), grid)
    return BlockPattern.on(grid, row_ptr, column.int(), visible.partial[row, column], visible.masks)


def _check(q: Tensor, k: Tensor, block_size: int) -> tuple[AttentionShape, BlockGrid]:
    shape = check_queries_and_keys(q, k)
    if not shape.batch:
        raise ValueError(f"q must have at least one batch entry to select by, got shape {tuple(q.shape)}")
    grid = BlockGrid(shape.heads, shape.query_length, shape.key_length, block_size)
    grid.check()
    return shape, grid


def _pool(rows: Tensor, block_size: int, dtype: torch.dtype) -> Tensor:
    """Average rows over blocks: (batch, heads, length, dim) to (batch, heads, blocks, dim)."""
    whole, rest = divmod(rows.shape[2], block_size)
    blocks = rows[:, :, : whole * block_size].unflatten(2, (whole, block_size))
    means: Tensor = blocks.sum(dim=3, dtype=dtype) / block_size
    if not rest:
        return means
    last = rows[:, :, whole * block_size :].sum(dim=2, keepdim=True, dtype=dtype) / rest
    return torch.cat([means, last], dim=2)


def _score(q: Tensor, k: Tensor) -> Tensor:
    """Multiply pooled queries and keys: (batch, heads, block rows, block columns)."""
    with torch.autocast(q.device.type, enabled=False):
        if q.shape[1] == k.shape[1]:
            return torch.matmul(q, k.mT)
        grouped = q.unflatten(1, (k.shape[1], -1))
        return torch.matmul(grouped, k.unsqueeze(2).mT).flatten(1, 2)
