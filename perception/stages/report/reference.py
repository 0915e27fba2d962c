"""Report in plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.boxes import wrap_angle
from perception.stages.report.common import LEAST_SHARE, LEAST_SIZE, ReportRules


def mapped_scores(scores: Tensor, labels: Tensor, rules: ReportRules) -> Tensor:
    """Map scores (...) float32 by their classes (...)."""
    mapped, scale, bias = rules.table[:, :3].unbind(1)
    share = scores.double().clamp(LEAST_SHARE, 1 - LEAST_SHARE)
    logit = scale[labels] * torch.log(share / (1 - share)) + bias[labels]
    made = (1 / (1 + torch.exp(-logit))).float()
    return torch.where(mapped[labels] > 0, made, scores)


def with_sizes(boxes: Tensor, labels: Tensor, rules: ReportRules) -> Tensor:
    """Wrap headings of boxes (..., 7) to (-pi, pi]; apply the size offsets and footprints of their classes.

    The face towards the sensor is measured, so a box grows in length away from the sensor. Beside the sensor
    both ends are seen, and the box grows to both. It grows in width to both sides, and upward.
    """
    x, y, z, length, _, _, yaw = boxes.unbind(-1)
    sides, offsets = rules.table[:, 3:5].to(boxes.dtype)[labels], rules.table[:, 5:].to(boxes.dtype)[labels]
    sizes = boxes[..., 3:6]
    grown = torch.maximum(sizes + offsets, sizes * LEAST_SIZE)
    added = grown - sizes
    cosine, sine = torch.cos(yaw), torch.sin(yaw)
    away = ((x * cosine + y * sine) / (0.5 * length)).clamp(-1.0, 1.0)
    shift = 0.5 * away * added[..., 0]
    centre = torch.stack([x + shift * cosine, y + shift * sine, z + 0.5 * added[..., 2]], dim=-1)
    footprint = torch.where(sides > 0, sides, grown[..., :2])
    return torch.cat([centre, footprint, grown[..., 2:], wrap_angle(boxes[..., 6:])], dim=-1)


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
        with_sizes(found, kinds, rules),
        vectors.float(),
    ]
    return torch.cat([_words(part) for part in parts])


def _words(part: Tensor) -> Tensor:
    return (part if part.is_floating_point() else part.to(torch.int32)).reshape(-1).view(torch.int32)
