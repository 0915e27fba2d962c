"""Result types and scores of all implementations of rotated NMS."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Number of boxes up to which all pairs are computed exactly; above, pairs of overlapping circles are listed.
FEW_BOXES = 128


class NmsIndices(NamedTuple):
    """Indices of kept boxes.

    Attributes:
        indices: (B, max_output) int32 rows of the input, best score first; -1 after the last.
        counts: (B,) int32 kept boxes.
        overflow: (B,) int32 pairs beyond the capacity. If not zero, a slower, exact table of all pairs
            decided the frame. Always zero for up to ``FEW_BOXES`` boxes.
    """

    indices: Tensor
    counts: Tensor
    overflow: Tensor


class Suppressed(NamedTuple):
    """Kept boxes, best score first.

    Attributes:
        boxes: (B, M, 7) float32; zeros after the last.
        scores: (B, M) float32; 0 after the last.
        labels: (B, M) int32; -1 after the last.
        counts: (B,) int32 kept boxes.
        indices: (B, M) int32 rows of the input; -1 after the last.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: Tensor
    indices: Tensor


def fused_scores(scores: Tensor, fit_logits: Tensor | None, weight: float) -> Tensor:
    """Return ``score^(1 - weight) * sigmoid(fit)^weight``, or the scores without ``fit_logits``."""
    if fit_logits is None:
        return scores
    fused: Tensor = scores ** (1 - weight) * torch.sigmoid(fit_logits) ** weight
    return fused
