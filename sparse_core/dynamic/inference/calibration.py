"""Calibrated confidence: temperature scaling, and thresholds for a target accuracy.

Guo et al., "On Calibration of Modern Neural Networks" (2017).
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.dynamic.ranking import check_batch


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature with the smallest cross-entropy of ``softmax(logits / temperature)``.

    The loss is convex in ``1 / temperature``. Bisection of its derivative finds the minimum between
    temperatures 0.01 and 100.

    Args:
        logits: (N, classes) of held-out data.
        labels: (N,) int64.

    Raises:
        ValueError: sizes do not fit, an empty batch, or logits that are not finite.
    """
    check_batch(logits, "logits")
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"needs logits (N, classes) and labels (N,), got {tuple(logits.shape)}, {tuple(labels.shape)}"
        )
    exact = logits.detach().double()
    if not bool(exact.isfinite().all()):
        raise ValueError("logits are NaN or infinite")
    chosen = exact.gather(1, labels[:, None]).squeeze(1)
    low, high = torch.tensor(0.01, dtype=torch.float32).double(), torch.tensor(100.0).double()
    low, high = low.to(exact.device), high.to(exact.device)
    for _ in range(80):
        inverse = (low * high).sqrt()
        # Derivative of the loss by the inverse temperature: expected logit minus the label's logit.
        slope = ((exact * inverse).softmax(1).mul(exact).sum(1) - chosen).mean()
        low, high = torch.where(slope < 0, inverse, low), torch.where(slope < 0, high, inverse)
    return float(1 / (low * high).sqrt())


def confidence_of(logits: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Return the largest probability (N,) of ``softmax(logits / temperature)``."""
    return (logits / temperature).softmax(dim=-1).amax(dim=-1)


def threshold_for_accuracy(confidence: Tensor, correct: Tensor, accuracy: float) -> float:
    """Return the lowest confidence at and above which answers reach the target accuracy.

    Args:
        confidence: (N,) of held-out data.
        correct: (N,) bool.
        accuracy: target for the answers at or above the threshold, above 0, at most 1.

    Returns:
        The threshold; infinite if even the most confident answers are not accurate enough.

    Raises:
        ValueError: sizes do not fit, an empty batch, or ``accuracy`` out of range.
    """
    check_batch(confidence, "confidence")
    if confidence.shape != correct.shape or confidence.ndim != 1:
        raise ValueError(
            f"needs confidence and correct (N,), got {tuple(confidence.shape)}, {tuple(correct.shape)}"
        )
    if not 0 < accuracy <= 1:
        raise ValueError(f"accuracy must be above 0 and at most 1, got {accuracy}")
    ordered, order = confidence.double().sort(descending=True, stable=True)
    right = correct[order].double().cumsum(0)
    enough = right >= accuracy * torch.arange(1, len(right) + 1, device=right.device) - 1e-9
    # Equal confidences are accepted or rejected together.
    last = torch.cat([ordered[1:] != ordered[:-1], torch.ones_like(enough[:1])])
    places = (enough & last).nonzero()
    return float(ordered[places[-1, 0]]) if len(places) else float("inf")


def calibration_error(confidence: Tensor, correct: Tensor, *, bins: int = 15) -> float:
    """Return the expected calibration error: |confidence - accuracy| averaged over equal-width bins.

    Args:
        confidence: (N,) in [0, 1].
        correct: (N,) bool.
        bins: at least 1.

    Raises:
        ValueError: an empty batch or no bins.
    """
    check_batch(confidence, "confidence")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    place = (confidence.double() * bins).long().clamp(0, bins - 1)
    # Unlike index_add_, this sums each bin in a fixed order on every device.
    member = place[:, None] == torch.arange(bins, device=place.device)
    gap = (member * (confidence.double() - correct.double())[:, None]).sum(dim=0)
    return float(gap.abs().sum() / len(confidence))
