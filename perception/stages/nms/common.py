"""What the implementations of rotated NMS share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Up to this many boxes every pair gets its exact overlap; above, pairs whose circles meet are listed first.
FEW_BOXES = 128


class NmsIndices(NamedTuple):
    """Boxes that are left.

    Attributes:
        indices: (B, max_output) int32 rows of the input, best score first, -1 behind the last.
        counts: (B,) int32.
        overflow: (B,) int32. Not zero: so many pairs more met than there was room for; the frame was decided
            by a table of all pairs, which is exact and slower. Never with up to ``FEW_BOXES`` boxes.
    """

    indices: Tensor
    counts: Tensor
    overflow: Tensor


class Suppressed(NamedTuple):
    """Boxes that are left, best score first.

    Attributes:
        boxes: (B, M, 7) float32; zeros behind the last.
        scores: (B, M) float32; 0 behind the last.
        labels: (B, M) int32; -1 behind the last.
        counts: (B,) int32.
        indices: (B, M) int32 rows of the input; -1 behind the last.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: Tensor
    indices: Tensor


def fused_scores(scores: Tensor, fit_logits: Tensor | None, weight: float) -> Tensor:
    """``score^(1 - weight) * sigmoid(fit)^weight``; the scores themselves without ``fit_logits``."""
    if fit_logits is None:
        return scores
    fused: Tensor = scores ** (1 - weight) * torch.sigmoid(fit_logits) ** weight
    return fused
