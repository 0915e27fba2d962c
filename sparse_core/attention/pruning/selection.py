"""Patterns of the most important blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparse_core.attention.operands import check_share
from sparse_core.attention.patterns.builders import full
from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.masks import from_block_mask
from sparse_core.attention.patterns.pattern import BlockPattern


@torch.no_grad()
def patterns_from_importance(
    importance: Tensor,
    density: float,
    *,
    block_size: int = 64,
    query_length: int | None = None,
    key_length: int | None = None,
    allowed: BlockPattern | None = None,
    causal: bool = False,
) -> BlockPattern:
    """Keep the most important blocks of each head; ties go by position.

    A head keeps ``round(density * blocks)`` of its allowed blocks (halves round up), but at least the best of
    each block row and, when causal, all on the diagonal. Waits for the device.

    Args:
        importance: floating (heads, block rows, block columns), or (block rows, block columns) for a pattern
            that all heads share; the pattern is on its device.
        density: share of the blocks, in (0, 1].
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        query_length, key_length: tokens, all of the block rows and columns by default.
        allowed: pairs that may be attended; the result is a part of it.
        causal: drop keys after the query, with the sequences aligned at their ends.

    Raises:
        TypeError: importance is not floating.
        ValueError: shapes, lengths, devices or density do not match, or an importance is not finite.
    """
    if not importance.is_floating_point():
        raise TypeError(f"importance must be floating point, got {importance.dtype}")
    if importance.ndim not in (2, 3):
        raise ValueError(
            "importance must have shape (block rows, block columns) or (heads, block rows, block columns),"
            f" got {tuple(importance.shape)}"
        )
    check_share("density", density)
    if not bool(importance.isfinite().all()):
        raise ValueError("importance must be finite: skip measurements with overflowing gradients")
    scores = importance.reshape(-1, *importance.shape[-2:])
    heads, rows, columns = scores.shape
    grid = BlockGrid(heads, query_length or rows * block_size, key_length or columns * block_size, block_size)
    grid.check()
    if (grid.rows, grid.columns) != (rows, columns):
        raise ValueError(
            f"{grid.query_length} queries and {grid.key_length} keys in blocks of {block_size} need"
            f" {grid.rows} x {grid.columns} importances, got {rows} x {columns}"
        )
    bounds, needed = candidates(grid, allowed, causal, scores.device)
    possible = bounds.to_block_mask().expand(scores.shape)
    kept = _best(scores, density, possible, needed.expand(scores.shape))
    mask = kept if importance.ndim == 3 else kept[0]
    chosen = from_block_mask(mask, block_size, query_length=grid.query_length, key_length=grid.key_length)
    return chosen & bounds


def candidates(
    grid: BlockGrid, allowed: BlockPattern | None, causal: bool, device: torch.device
) -> tuple[BlockPattern, Tensor]:
    """Return the allowed pairs, and bool (heads or 1, block rows, block columns) of those on the diagonal."""
    if allowed is not None:
        expected = (grid.query_length, grid.key_length, grid.block_size)
        found = (allowed.query_length, allowed.key_length, allowed.block_size)
        if found != expected or allowed.heads not in (1, grid.heads):
            raise ValueError(
                f"allowed must be for {expected[0]} queries and {expected[1]} keys in blocks of {expected[2]}"
                f" with 1 or {grid.heads} heads, got {allowed!r}"
            )
        if allowed.device != device:
            raise ValueError(f"allowed is on {allowed.device} but importance is on {device}")
    bounds = allowed
    diagonal = torch.zeros((1, grid.rows, grid.columns), dtype=torch.bool, device=device)
    if bounds is None or causal:
        square = full(grid.query_length, grid.block_size, key_length=grid.key_length, device=device)
        if causal:
            square = square.causal()
            place = [index[square.partial != FULL] for index in square.coordinates()]
            diagonal[place[0], place[1], place[2]] = True
        bounds = square if bounds is None else bounds & square
    return bounds, diagonal & bounds.to_block_mask()


def _best(scores: Tensor, density: float, possible: Tensor, needed: Tensor) -> Tensor:
    """Return the blocks to keep, bool like ``scores`` (heads, block rows, block columns)."""
    ranked = scores.masked_fill(~possible, -math.inf)
    best = torch.zeros_like(possible).scatter(2, ranked.argmax(dim=2, keepdim=True), True)
    needed = (needed | (best & ~needed.any(dim=2, keepdim=True))) & possible
    # Add 0.0, because a radix sort separates -0.0 from 0.0.
    ranked = (ranked + 0.0).masked_fill(needed, math.inf).flatten(1)
    total, least = (mask.flatten(1).sum(dim=1) for mask in (possible, needed))
    count = (density * total.double() + 0.5).floor().long().maximum(least)
    order = torch.sort(ranked, dim=1, descending=True, stable=True).indices
    chosen = torch.arange(order.shape[1], device=order.device) < count[:, None]
    return torch.zeros_like(chosen).scatter(1, order, chosen).reshape(scores.shape)
