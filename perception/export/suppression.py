"""Greedy suppression of a fixed number of boxes without a host."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

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
    better, worse = torch.triu_indices(count, count, 1)
    exact = boxes.double()
    over = iou_of_checked_pairs(exact[better], exact[worse], metric="bev") > iou_threshold
    over &= labels[better] == labels[worse]
    # Row by row of the worse ones, by places that are known beforehand; the last is of no pair.
    places = torch.full((count, count), len(better)).index_put((worse, better), torch.arange(len(better)))
    strikes = F.pad(-over.float(), (0, 1))[places]
    start = usable.float()
    kept = start[None]
    # After t rounds the first t boxes are as the greedy pass leaves them, and no longer change. Ones and
    # zeros as numbers: a round is one product.
    for _ in range(count):
        kept = torch.relu(F.linear(kept, strikes, start))
    return kept[0] > 0


def first_kept(kept: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Places of the first ``most`` of a (K,) mask, and which of these are: (most,) int64 and bool."""
    count = kept.shape[0]
    rank = torch.arange(count - 1, -1, -1)
    # All are different, so that every library sorts alike.
    order = torch.topk(torch.where(kept, rank + count, rank), min(most, count)).indices
    return order, kept.index_select(0, order)
