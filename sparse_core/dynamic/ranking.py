"""Choose exactly so many entries by score, without reading anything back from the device."""

from __future__ import annotations

import torch
from torch import Tensor


def best_entries(scores: Tensor, count: int) -> Tensor:
    """Exactly ``count`` true entries a row: those with the largest score, of equal ones the first.

    Args:
        scores: (P, W) real, without NaN.
        count: 0 to W.

    Returns:
        (P, W) bool; the same on every device.
    """
    if count >= scores.shape[1]:
        return torch.ones_like(scores, dtype=torch.bool)
    if count <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    least = torch.topk(scores, count, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
    above, level = scores > least, scores == least
    missing = count - above.sum(dim=1, keepdim=True)
    return above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= missing))


def nan_first(scores: Tensor) -> Tensor:
    """Scores to rank by, without gradient: NaN counts as the largest, so that it is not hidden."""
    return torch.where(scores.isnan(), float("inf"), scores.detach())


def best_by_row(scores: Tensor, counts: Tensor, most: int) -> Tensor:
    """As many true entries in each row as asked for: those with the largest score, of equal ones the first.

    Args:
        scores: (P, W) real, without NaN.
        counts: (P, 1) int64, 0 to ``most``.
        most: 1 to W, given so that nothing is read on the host.

    Returns:
        (P, W) bool; the same on every device.
    """
    ordered = torch.topk(scores, most, dim=1).values
    least = ordered.gather(1, (counts - 1).clamp(min=0))
    above, level = scores > least, scores == least
    missing = counts - above.sum(dim=1, keepdim=True)
    return above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= missing))


def true_positions(mask: Tensor, count: int) -> Tensor:
    """Rising positions of the true entries of each row.

    Args:
        mask: (P, W) bool with exactly ``count`` true entries a row.
        count: that number, given so that nothing is counted on the host.

    Returns:
        (P, count) int64.
    """
    numbers = torch.arange(1, count + 1, device=mask.device, dtype=torch.int32)
    found = mask.cumsum(dim=1, dtype=torch.int32)
    return torch.searchsorted(found, numbers.expand(len(mask), count).contiguous())


def check_batch(x: Tensor, name: str = "x") -> None:
    """Refuse a tensor without entries.

    Raises:
        ValueError: it is empty.
    """
    if x.numel() == 0:
        raise ValueError(f"{name} is an empty batch of shape {tuple(x.shape)}: leave out calls without rows")
