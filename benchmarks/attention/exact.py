"""Attention in float64 for some block rows: what every side of the attention benchmark is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_core.attention import BlockPattern

#: Largest difference from float64, over the largest number; gradients may have twice that.
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 1e-4}


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Largest difference over the largest number of ``exact``; infinite where something is not a number."""
    error = float((found.to(exact.dtype) - exact).abs().max() / exact.abs().max().clamp(min=1e-30))
    return error if math.isfinite(error) else math.inf


def error_of_rows(
    results: Sequence[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor | None,
    pattern: BlockPattern | None,
    block_size: int,
) -> float:
    """Largest error of three block rows, relative to the largest number of each.

    Args:
        results: the output, and with ``grad`` then the gradient of q; all (batch, heads, length, dim).
        q, k, v: operands of the same shape.
        grad: gradient of the output.
        pattern: what is attended; ``None`` for everything.
        block_size: queries of a block row, where there is no pattern.
    """
    batch, heads, length, _ = q.shape
    rows = -(-length // block_size)
    places = dict.fromkeys([(0, 0, 0), (batch - 1, heads - 1, rows // 2), (batch // 2, heads // 2, rows - 1)])
    worst = 0.0
    for entry, head, row in places:
        some = slice(row * block_size, min((row + 1) * block_size, length))
        mask = None if pattern is None else row_mask(pattern, head, row)
        out, dq = exact_rows(
            q[entry, head, some],
            k[entry, head],
            v[entry, head],
            None if grad is None else grad[entry, head, some],
            mask,
        )
        worst = max(worst, relative_error(results[0][entry, head, some].detach(), out))
        if dq is not None:
            worst = max(worst, relative_error(results[1][entry, head, some], dq))
    return worst


def exact_rows(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Output of some queries of one head, and with ``grad`` the gradient of these queries, in float64.

    Args:
        q: (queries, dim).
        k, v: (keys, dim).
        grad: (queries, dim) gradient of the output.
        mask: bool (queries, keys), at least one True a row; ``None`` for everything.
    """
    q, k, v = (part.detach().double() for part in (q, k, v))
    scale = q.shape[1] ** -0.5
    scores = q @ k.T * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=1)
    out = weights @ v
    if grad is None:
        return out, None
    change = grad.double() @ v.T
    change = weights * (change - (change * weights).sum(dim=1, keepdim=True))
    return out, change @ k * scale


def row_mask(pattern: BlockPattern, head: int, row: int) -> Tensor:
    """Bool (queries of the block row, key_length): what one block row attends; waits for the device."""
    size = pattern.block_size
    start, end = pattern.row_ptr[head % pattern.heads, row : row + 2].tolist()
    mask = torch.zeros((size, pattern.block_columns, size), dtype=torch.bool, device=pattern.device)
    for column, partial in zip(
        pattern.columns[start:end].tolist(), pattern.partial[start:end].tolist(), strict=True
    ):
        mask[:, column] = True if partial < 0 else pattern.token_masks[partial]
    queries = min(size, pattern.query_length - row * size)
    return mask.flatten(1)[:queries, : pattern.key_length]
