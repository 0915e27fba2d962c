"""Rotated NMS of a batch in plain torch, with a variant of fixed shape for exported programs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.boxes import MAX_FIELD, Metric, iou_of_checked_pairs
from perception.nms import rotated_nms_exact
from perception.stages.nms.common import NmsIndices, Suppressed


def fixed_nms(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    iou_threshold: float,
    score_threshold: float,
    most: int,
    metric: Metric,
) -> NmsIndices:
    """See :func:`perception.stages.nms.fixed_nms`."""
    frames = len(boxes)
    indices = torch.full((frames, most), -1, dtype=torch.int32, device=boxes.device)
    counts = torch.zeros(frames, dtype=torch.int32, device=boxes.device)
    usable = (labels >= 0) & (scores >= score_threshold)
    usable &= (boxes.abs() <= MAX_FIELD).all(dim=2) & (boxes[..., 3:6] >= 0).all(dim=2)
    if torch.compiler.is_exporting():
        found = [
            _first_kept(*frame, iou_threshold, most, metric)
            for frame in zip(boxes, scores, labels, usable, strict=True)
        ]
        indices, counts = (torch.stack(parts) for parts in zip(*found, strict=True))
        return NmsIndices(indices, counts, torch.zeros_like(counts))
    for frame in range(frames):
        rows = usable[frame].nonzero()[:, 0]
        kept = rotated_nms_exact(
            boxes[frame, rows],
            scores[frame, rows],
            iou_threshold,
            labels=labels[frame, rows],
            max_output=most,
            metric=metric,
        )
        indices[frame, : len(kept)] = rows[kept].to(torch.int32)
        counts[frame] = len(kept)
    return NmsIndices(indices, counts, torch.zeros_like(counts))


def _first_kept(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    usable: Tensor,
    iou_threshold: float,
    most: int,
    metric: Metric,
) -> tuple[Tensor, Tensor]:
    """Return the rows (most,) int32 of kept boxes of a frame and their number, without read-backs.

    Args:
        boxes: (K, 7); scores: (K,) not negative; labels: (K,); usable: (K,) bool, False for ignored boxes.
        iou_threshold, most, metric: see :func:`fixed_nms`.
    """
    count = boxes.shape[0]
    order = torch.topk(torch.where(usable, scores, -1.0), count).indices
    parts = (part.index_select(0, order) for part in (boxes, labels, usable))
    kept = survivors(*parts, iou_threshold=iou_threshold, metric=metric)
    rank = torch.arange(count - 1, -1, -1)
    # All keys differ, so that all libraries give the same order.
    first = torch.topk(torch.where(kept, rank + count, rank), min(most, count)).indices
    left = kept.index_select(0, first)
    rows = torch.where(left, order.index_select(0, first), -1)
    return F.pad(rows, (0, max(0, most - count)), value=-1).int(), left.sum().int()


def survivors(
    boxes: Tensor, labels: Tensor, usable: Tensor, *, iou_threshold: float, metric: Metric = "bev"
) -> Tensor:
    """Return a mask (K,) of the boxes that :func:`~perception.nms.rotated_nms` keeps, without read-backs.

    Args:
        boxes: (K, 7), best score first.
        labels: (K,) integer; boxes with equal labels suppress each other.
        usable: (K,) bool, False for ignored boxes.
        iou_threshold: suppress above this IoU.
        metric: ``"bev"`` or ``"3d"``.
    """
    count = boxes.shape[0]
    better, worse = torch.triu_indices(count, count, 1)
    exact = boxes.double()
    over = iou_of_checked_pairs(exact[better], exact[worse], metric=metric) > iou_threshold
    over &= labels[better] == labels[worse]
    # Matrix of suppression, worse by better box; the last entry is for no pair.
    places = torch.full((count, count), len(better)).index_put((worse, better), torch.arange(len(better)))
    strikes = F.pad(-over.float(), (0, 1))[places]
    start = usable.float()
    kept = start[None]
    # After t rounds the first t boxes have their final state. Each round is one matrix product.
    for _ in range(count):
        kept = torch.relu(F.linear(kept, strikes, start))
    return kept[0] > 0


def taken(boxes: Tensor, scores: Tensor, labels: Tensor, kept: NmsIndices) -> Suppressed:
    """Gather the kept boxes."""
    absent = kept.indices < 0
    rows = kept.indices.clamp_min(0).long()
    if boxes.shape[1] == 0:
        return Suppressed(
            boxes.new_zeros(*rows.shape, 7),
            scores.new_zeros(rows.shape),
            kept.indices,
            kept.counts,
            kept.indices,
        )
    return Suppressed(
        boxes.gather(1, rows[..., None].expand(-1, -1, 7)).masked_fill(absent[..., None], 0.0),
        scores.gather(1, rows).masked_fill(absent, 0.0),
        labels.to(torch.int32).gather(1, rows).masked_fill(absent, -1),
        kept.counts,
        kept.indices,
    )
