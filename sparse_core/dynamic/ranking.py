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
    return above | (level & (level.cumsum(dim=1) <= missing))


def true_positions(mask: Tensor, count: int) -> Tensor:
    """Rising positions of the true entries of each row.

    Args:
        mask: (P, W) bool with exactly ``count`` true entries a row.
        count: that number, given so that nothing is counted on the host.

    Returns:
        (P, count) int64.
    """
    # What is false goes to a last column that is cut off.
    place = torch.where(mask, mask.cumsum(dim=1) - 1, count)
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(place)
    found = positions.new_zeros(len(mask), count + 1)
    return found.scatter_(1, place, positions)[:, :count].contiguous()


def rank_in_rows(scores: Tensor) -> Tensor:
    """(P, W) int64: how many entries of the row go before each; of equal scores the first goes first."""
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places.contiguous())


def check_batch(x: Tensor, name: str = "x") -> None:
    """Refuse a tensor without entries.

    Raises:
        ValueError: it is empty.
    """
    if x.numel() == 0:
        raise ValueError(f"{name} is an empty batch of shape {tuple(x.shape)}: leave out calls without rows")
