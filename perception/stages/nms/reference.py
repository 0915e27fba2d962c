"""Rotated NMS of a batch, frame by frame through the exact one."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.boxes import MAX_FIELD, Metric
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


def taken(boxes: Tensor, scores: Tensor, labels: Tensor, kept: NmsIndices) -> Suppressed:
    """The kept boxes themselves."""
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
