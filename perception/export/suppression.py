"""Greedy suppression of a fixed number of boxes without a host."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.boxes import iou_of_checked_pairs


def survivors(boxes: Tensor, labels: Tensor, usable: Tensor, *, iou_threshold: float) -> Tensor:
    """Which boxes :func:`~perception.nms.rotated_nms` keeps.

    Args:
        boxes: (K, 7) float32, best score first.
        labels: (K,) int64; boxes of one label suppress each other.
        usable: (K,) bool: which take part.
        iou_threshold: overlap seen from above, more than which suppresses.

    Returns:
        (K,) bool.
    """
    count = boxes.shape[0]
    exact = boxes.double()
    first = exact[:, None].expand(-1, count, -1).reshape(-1, 7)
    second = exact[None].expand(count, -1, -1).reshape(-1, 7)
    over = iou_of_checked_pairs(first, second, metric="bev").view(count, count) > iou_threshold
    over &= labels[:, None] == labels
    over &= torch.ones(count, count, dtype=torch.bool).triu(1)
    strikes = over.float()
    kept = usable
    # After t rounds the first t boxes are as the greedy pass leaves them, and no longer change.
    for _ in range(count):
        kept = usable & ((kept.float() @ strikes) == 0)
    return kept


def first_kept(kept: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Places of the first ``most`` of a (K,) mask, and which of these are: (most,) int64 and bool."""
    count = kept.shape[0]
    rank = torch.arange(count - 1, -1, -1)
    # All are different, so that every library sorts alike.
    order = torch.topk(torch.where(kept, rank + count, rank), min(most, count)).indices
    return order, kept.index_select(0, order)
