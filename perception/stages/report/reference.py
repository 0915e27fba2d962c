"""Report in plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.boxes import wrap_angle
from perception.stages.report.common import LEAST_SHARE, ReportRules


def mapped_scores(scores: Tensor, labels: Tensor, rules: ReportRules) -> Tensor:
    """Map scores (...) float32 by their classes (...)."""
    mapped, scale, bias = rules.table[:, :3].unbind(1)
    share = scores.double().clamp(LEAST_SHARE, 1 - LEAST_SHARE)
    logit = scale[labels] * torch.log(share / (1 - share)) + bias[labels]
    made = (1 / (1 + torch.exp(-logit))).float()
    return torch.where(mapped[labels] > 0, made, scores)


def with_footprints(boxes: Tensor, labels: Tensor, rules: ReportRules) -> Tensor:
    """Wrap headings of boxes (..., 7) to (-pi, pi] and set the footprint of their class, if any."""
    sides = rules.table[:, 3:].to(boxes.dtype)[labels]
    given = torch.where(sides > 0, sides, boxes[..., 3:5])
    return torch.cat([boxes[..., :3], given, boxes[..., 5:6], wrap_angle(boxes[..., 6:])], dim=-1)


def report(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    counts: Tensor,
    numbers: Tensor,
    embeddings: Tensor,
    rules: ReportRules,
) -> Tensor:
    """See :func:`perception.stages.report.fixed_report`."""
    absent = labels < 0
    kinds = labels.clamp_min(0).long()
    shown = mapped_scores(scores, kinds, rules).masked_fill(absent, -1.0)
    shown, order = torch.sort(shown, dim=1, descending=True, stable=True)
    kinds = kinds.gather(1, order)
    found = boxes.gather(1, order[..., None].expand_as(boxes))
    vectors = embeddings.gather(1, order[..., None].expand_as(embeddings))
    parts = [
        counts,
        numbers,
        shown.clamp_min(0.0),
        labels.gather(1, order),
        with_footprints(found, kinds, rules),
        vectors.float(),
    ]
    return torch.cat([_words(part) for part in parts])


def _words(part: Tensor) -> Tensor:
    return (part if part.is_floating_point() else part.to(torch.int32)).reshape(-1).view(torch.int32)
