"""Patterns of the blocks with the best scores."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.gpu.plan import ROW_LENGTHS, capturing
from sparse_core.attention.patterns.builders import full
from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern

#: Shared parts of patterns that are cached.
_MOST_ROWS = 64


@torch.no_grad()
def best_blocks(scores: Tensor, grid: BlockGrid, keep: float, *, causal: bool = False) -> BlockPattern:
    """Keep the ``round(keep * blocks)`` best-scored blocks of each block row.

    Ties keep the lower column; NaN is the lowest score. Only the first causal call for new lengths waits for
    the device.

    Args:
        scores: (heads, block rows, block columns) floating; of fewer heads if neighbouring heads of the grid
            keep the same blocks.
        grid: heads, lengths and block size of the pattern.
        keep: share of the blocks that a row keeps, in (0, 1]; at least one block.
        causal: drop keys after the query. ``keep`` is then a share of the visible blocks, and those on the
            diagonal are always kept.
    """
    # Add 0.0, because a radix sort separates -0.0 from 0.0.
    scores = scores.nan_to_num(nan=torch.finfo(scores.dtype).min) + 0.0
    sharing = grid.heads // len(scores)
    if causal:
        visible = visible_blocks(grid, causal, scores.device)
        rows = _causal_rows(grid, keep, scores.device)
        scores = scores.masked_fill(~visible.seen, -math.inf).masked_fill(visible.crossed, math.inf)
        best = torch.sort(scores, dim=2, descending=True, stable=True).indices[:, :, : rows.widest]
        place = torch.arange(rows.widest, device=scores.device)
        best = torch.sort(best.masked_fill(place >= rows.kept[:, None], grid.columns), dim=2).values
        best = _repeat(best, sharing).flatten()[rows.entry]
        columns, partial, masks = best.int(), visible.partial[rows.row, best], visible.masks
        row_ptr, lengths = rows.row_ptr, rows.lengths
    else:
        count = min(grid.columns, max(1, round(keep * grid.columns)))
        common = _equal_rows(grid, count, scores.device)
        best = torch.sort(scores, dim=2, descending=True, stable=True).indices[:, :, :count]
        columns = _repeat(torch.sort(best, dim=2).values.int(), sharing).flatten()
        row_ptr, partial, masks, lengths = common
    pattern = BlockPattern.on(grid, row_ptr, columns, partial, masks)
    pattern.plans[ROW_LENGTHS] = lengths
    return pattern


def blocks_seen(grid: BlockGrid, causal: bool, device: torch.device) -> Tensor:
    """Return (block rows, block columns) bool: True if a query of the row may see a key of the column."""
    column = torch.arange(0, grid.key_length, grid.block_size, device=device)
    if not causal:
        return torch.ones((grid.rows, len(column)), dtype=torch.bool, device=device)
    ends = torch.arange(1, grid.rows + 1, device=device) * grid.block_size
    last_query = ends.clamp(max=grid.query_length) - 1
    return column <= last_query[:, None] + grid.key_length - grid.query_length


class VisibleBlocks(NamedTuple):
    """Blocks of a grid before any is chosen."""

    seen: Tensor  # (block rows, block columns) bool, True if a row may keep it
    crossed: Tensor  # (block rows, block columns) bool, True on the diagonal, which is always kept
    partial: Tensor  # (block rows, block columns) int32, mask of each block
    masks: Tensor  # (masks, block_size, block_size) bool


@lru_cache(maxsize=64)
def visible_blocks(grid: BlockGrid, causal: bool, device: torch.device) -> VisibleBlocks:
    """Return the blocks of a grid, cached."""
    # Tensors made in inference mode cannot take part in autograd later.
    with torch.inference_mode(False):
        all_blocks = full(grid.query_length, grid.block_size, key_length=grid.key_length, device=device)
        all_blocks = all_blocks.causal() if causal else all_blocks
        partial = torch.full((grid.rows, grid.columns), FULL, dtype=torch.int32, device=device)
        partial[all_blocks.coordinates()[1:]] = all_blocks.partial
        return VisibleBlocks(all_blocks.to_block_mask(), partial != FULL, partial, all_blocks.token_masks)


class _CausalRows(NamedTuple):
    """Sizes of the rows of a causal pattern, which do not depend on the scores."""

    row_ptr: Tensor  # (heads, block rows + 1) int32
    kept: Tensor  # (block rows,) int64, blocks that a row keeps
    widest: int  # the largest of ``kept``
    entry: Tensor  # (blocks,) int64 position in (heads, block rows, widest)
    row: Tensor  # (blocks,) int64
    lengths: Tensor  # (heads * block rows,) int64 on the CPU


@lru_cache(maxsize=64)
def _causal_rows(grid: BlockGrid, keep: float, device: torch.device) -> _CausalRows:
    with torch.inference_mode(False):
        visible = visible_blocks(grid, True, device)
        seen = visible.seen.sum(dim=1)
        blocks_per_row = (keep * seen.double()).round().long().clamp(min=1)
        count = blocks_per_row.maximum(visible.crossed.sum(dim=1)).minimum(seen)
        widest = int(count.max())
        kept = torch.arange(widest, device=device) < count[:, None]
        entry = kept.expand(grid.heads, -1, -1).flatten().nonzero()[:, 0]
        lengths = count.repeat(grid.heads)
        return _CausalRows(
            row_offsets(lengths, grid), count, widest, entry, entry // widest % grid.rows, lengths.cpu()
        )


def row_offsets(lengths: Tensor, grid: BlockGrid) -> Tensor:
    """Return ``row_ptr`` (heads, block rows + 1) int32 for rows of (heads * block rows,) blocks."""
    ends = lengths.cumsum(0).reshape(grid.heads, grid.rows)
    starts = torch.cat([ends.new_zeros(1), ends[:-1, -1]])
    return torch.cat([starts[:, None], ends], dim=1).int()


class _EqualRows(NamedTuple):
    """Parts that patterns share whose rows all have equally many full blocks."""

    row_ptr: Tensor
    partial: Tensor
    masks: Tensor
    lengths: Tensor


_known_rows: dict[tuple[BlockGrid, int, torch.device], _EqualRows] = {}
#: Those that a CUDA graph reads. A graph does not keep its tensors alive, so they are never dropped.
_rows_of_graphs: dict[tuple[BlockGrid, int, torch.device], _EqualRows] = {}


def _equal_rows(grid: BlockGrid, count: int, device: torch.device) -> _EqualRows:
    """Return the parts, cached unless a CUDA graph that is being captured is the first to need them."""
    key = (grid, count, device)
    rows = _rows_of_graphs.get(key) or _known_rows.get(key)
    if rows is None:
        units = grid.heads * grid.rows
        first = torch.arange(0, (units + 1) * count, max(count, 1), device=device, dtype=torch.int32)
        rows = _EqualRows(
            first.as_strided((grid.heads, grid.rows + 1), (grid.rows, 1)).contiguous(),
            torch.full((units * count,), FULL, dtype=torch.int32, device=device),
            torch.zeros((0, grid.block_size, grid.block_size), dtype=torch.bool, device=device),
            torch.full((units,), count),
        )
        if not capturing(device):
            if len(_known_rows) >= _MOST_ROWS:
                _known_rows.clear()
            _known_rows[key] = rows
    elif capturing(device):
        _rows_of_graphs[key] = rows
    return rows


def _repeat(columns: Tensor, times: int) -> Tensor:
    return columns if times == 1 else columns.repeat_interleave(times, dim=0)
