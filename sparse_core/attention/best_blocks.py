"""The blocks with the best scores, as a pattern."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.builders import full
from sparse_core.attention.grid import FULL, BlockGrid
from sparse_core.attention.pattern import BlockPattern


@torch.no_grad()
def best_blocks(scores: Tensor, grid: BlockGrid, keep: float, *, causal: bool = False) -> BlockPattern:
    """For each block row the ``round(keep * blocks)`` blocks with the best scores.

    Of equal scores the lower column is kept; NaN is the lowest score. Nothing waits for the device, except
    the first call for new lengths.

    Args:
        scores: (heads, block rows, block columns) floating.
        grid: heads, lengths and block size of the pattern.
        keep: share of the blocks that a row keeps, in (0, 1]; at least one block.
        causal: drop keys after the query. The share is then that of the blocks which the row may see, and
            those on the diagonal are always among the kept.
    """
    choice = _choice(grid, keep, causal, scores.device)
    # A radix sort would tell -0.0 from 0.0.
    scores = scores.nan_to_num(nan=torch.finfo(scores.dtype).min) + 0.0
    scores = scores.masked_fill(~choice.seen, -math.inf).masked_fill(choice.crossed, math.inf)
    best = torch.sort(scores, dim=2, descending=True, stable=True).indices[:, :, : choice.widest]
    place = torch.arange(choice.widest, device=scores.device)
    best = torch.sort(best.masked_fill(place >= choice.kept[:, None], grid.columns), dim=2).values
    columns = best.flatten()[choice.entry]
    return BlockPattern(
        choice.row_ptr,
        columns.int(),
        choice.partial[choice.row, columns],
        choice.masks,
        query_length=grid.query_length,
        key_length=grid.key_length,
        block_size=grid.block_size,
    )


def blocks_seen(grid: BlockGrid, causal: bool, device: torch.device) -> Tensor:
    """(block rows, block columns) bool: whether a query of the row may attend to a key of the column."""
    column = torch.arange(0, grid.key_length, grid.block_size, device=device)
    if not causal:
        return torch.ones((grid.rows, len(column)), dtype=torch.bool, device=device)
    ends = torch.arange(1, grid.rows + 1, device=device) * grid.block_size
    last_query = ends.clamp(max=grid.query_length) - 1
    return column <= last_query[:, None] + grid.key_length - grid.query_length


class _Choice(NamedTuple):
    """What is known before the scores are."""

    seen: Tensor  # (block rows, block columns) bool, may be kept
    crossed: Tensor  # (block rows, block columns) bool, must be kept
    partial: Tensor  # (block rows, block columns) int32, mask of each block
    masks: Tensor  # (masks, block_size, block_size) bool
    kept: Tensor  # (block rows,) int64, blocks that a row keeps
    widest: int  # the largest of these
    row_ptr: Tensor  # (heads, block rows + 1) int32
    entry: Tensor  # (blocks,) int64 place among (heads, block rows, widest)
    row: Tensor  # (blocks,) int64


@lru_cache(maxsize=64)
def _choice(grid: BlockGrid, keep: float, causal: bool, device: torch.device) -> _Choice:
    # Tensors made in inference mode could not be used in training later.
    with torch.inference_mode(False):
        everything = full(grid.query_length, grid.block_size, key_length=grid.key_length, device=device)
        everything = everything.causal() if causal else everything
        _, row, column = everything.coordinates()
        seen = torch.zeros((grid.rows, grid.columns), dtype=torch.bool, device=device)
        seen[row, column] = True
        partial = torch.full((grid.rows, grid.columns), FULL, dtype=torch.int32, device=device)
        partial[row, column] = everything.partial
        crossed = partial != FULL
        visible = seen.sum(dim=1)
        wanted = (keep * visible.double()).round().long().clamp(min=1)
        count = wanted.maximum(crossed.sum(dim=1)).minimum(visible)
        widest = int(count.max())
        kept = torch.arange(widest, device=device) < count[:, None]
        entry = kept.expand(grid.heads, -1, -1).flatten().nonzero()[:, 0]
        ends = count.repeat(grid.heads).cumsum(0).reshape(grid.heads, grid.rows)
        starts = torch.cat([ends.new_zeros(1), ends[:-1, -1]])
        return _Choice(
            seen=seen,
            crossed=crossed,
            partial=partial,
            masks=everything.token_masks,
            kept=count,
            widest=widest,
            row_ptr=torch.cat([starts[:, None], ends], dim=1).int(),
            entry=entry,
            row=entry // widest % grid.rows,
        )
