"""Select an exact number of entries by score, without waiting for the device."""

from __future__ import annotations

import torch
from torch import Tensor


def best_entries(scores: Tensor, count: int) -> Tensor:
    """Return (P, W) bool with the ``count`` largest scores per row; ties go to the first, on every device.

    ``scores`` (P, W) are real, without NaN.
    """
    if count >= scores.shape[1]:
        return torch.ones_like(scores, dtype=torch.bool)
    if count <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    least = torch.topk(scores, count, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
    above, level = scores > least, scores == least
    missing = count - above.sum(dim=1, keepdim=True)
    return above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= missing))


def best_by_row(scores: Tensor, counts: Tensor, most: int) -> Tensor:
    """Return (P, W) bool with the ``counts`` (P, 1) largest scores per row; ties go to the first.

    ``scores`` (P, W) are real, without NaN. ``most`` bounds the counts, so that none is read on the host.
    """
    ordered = torch.topk(scores, most, dim=1).values
    least = ordered.gather(1, (counts - 1).clamp(min=0))
    above, level = scores > least, scores == least
    missing = counts - above.sum(dim=1, keepdim=True)
    return above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= missing))


def true_positions(mask: Tensor, count: int) -> Tensor:
    """Return the rising positions (P, count) int64 of the true entries of each row.

    Every row of ``mask`` (P, W) has exactly ``count``; giving it avoids counting on the host.
    """
    numbers = torch.arange(1, count + 1, device=mask.device, dtype=torch.int32)
    found = mask.cumsum(dim=1, dtype=torch.int32)
    return torch.searchsorted(found, numbers.expand(len(mask), count).contiguous())


def check_batch(x: Tensor, name: str = "x") -> None:
    """Raise ``ValueError`` if a tensor has no entries."""
    if x.numel() == 0:
        raise ValueError(f"{name} is an empty batch of shape {tuple(x.shape)}: leave out calls without rows")
