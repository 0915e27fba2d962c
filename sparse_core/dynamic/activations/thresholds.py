"""Zero the activations below a threshold: absolute, by percentile, or relative to the neighbourhood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sparse_core.dynamic.activations.masks import Gradient, check_gradient, masked
from sparse_core.dynamic.ranking import check_batch


@dataclass(frozen=True)
class AbsoluteThreshold:
    """Keep ``abs(x) > value``; ``value`` is at least 0."""

    value: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"value must be finite and not negative, got {self.value}")

    def mask(self, x: Tensor) -> Tensor:
        """Return the bool mask of ``x``; NaN is kept, so that it stays visible."""
        return ~(x.abs() <= self.value)


@dataclass(frozen=True)
class PercentileThreshold:
    """Drop the smallest ``percentile`` per cent by absolute value.

    Entries equal to the threshold are dropped too, so more than ``percentile`` may go, for example after a
    ReLU.

    Attributes:
        percentile: at least 0 and below 100.
        per_row: rank within each row (last dimension) instead of the whole tensor.
    """

    percentile: float
    per_row: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.percentile < 100:
            raise ValueError(f"percentile must be at least 0 and below 100, got {self.percentile}")

    def mask(self, x: Tensor) -> Tensor:
        """Return the bool mask of ``x``; NaN is kept, so that it stays visible."""
        size = x.abs()
        rows = size.reshape(-1, x.shape[-1]) if self.per_row else size.reshape(1, -1)
        dropped = math.floor(self.percentile / 100 * rows.shape[1] + 1e-9)
        if dropped == 0:
            return torch.ones_like(x, dtype=torch.bool)
        # NaN ranks last in kthvalue, as the largest.
        threshold = torch.kthvalue(rows, dropped, dim=1, keepdim=True).values
        return (~(rows <= threshold)).reshape(x.shape)


@dataclass(frozen=True)
class LocalThreshold:
    """Keep ``abs(x) > mean + factor * deviation``, relative to the neighbourhood.

    Mean and standard deviation are those of ``abs(x)`` in a window of the last dimension, cut at its ends.

    Attributes:
        factor: standard deviations above the mean; may be negative.
        window: odd number of entries; ``None`` for the whole row.
    """

    factor: float = 1.0
    window: int | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.factor):
            raise ValueError(f"factor must be finite, got {self.factor}")
        if self.window is not None and (self.window < 3 or self.window % 2 == 0):
            raise ValueError(f"window must be odd and at least 3, got {self.window}")

    def mask(self, x: Tensor) -> Tensor:
        """Return the bool mask of ``x``; entries with NaN in their window are kept."""
        size = x.abs().to(torch.promote_types(x.dtype, torch.float32))
        if self.window is None:
            mean, square = size.mean(-1, keepdim=True), size.square().mean(-1, keepdim=True)
        else:
            rows = size.reshape(-1, 1, x.shape[-1])
            mean, square = (self._pooled(part).reshape(x.shape) for part in (rows, rows.square()))
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        return ~(size <= mean + self.factor * deviation)

    def _pooled(self, rows: Tensor) -> Tensor:
        assert self.window is not None
        return nn.functional.avg_pool1d(
            rows, self.window, stride=1, padding=self.window // 2, count_include_pad=False
        )


Threshold = AbsoluteThreshold | PercentileThreshold | LocalThreshold


class ThresholdActivation(nn.Module):
    """Zero the entries that a rule drops.

    Args:
        rule: :class:`AbsoluteThreshold`, :class:`PercentileThreshold` or :class:`LocalThreshold`.
        gradient: ``"kept"`` or ``"straight-through"``.

    Raises:
        TypeError: another rule.
        ValueError: another ``gradient``.
    """

    def __init__(self, rule: Threshold, *, gradient: Gradient = "kept") -> None:
        super().__init__()
        if not isinstance(rule, Threshold):
            raise TypeError(
                f"rule must be AbsoluteThreshold, PercentileThreshold or LocalThreshold, got {rule!r}"
            )
        check_gradient(gradient)
        self.rule, self.gradient = rule, gradient

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with zeros where the rule drops entries; same shape.

        Raises:
            ValueError: an empty batch.
        """
        check_batch(x)
        return masked(x, self.rule.mask(x.detach()), self.gradient)

    def extra_repr(self) -> str:
        """Return the rule for ``print(model)``."""
        return f"{self.rule}, gradient={self.gradient!r}"


class LearnedThreshold(nn.Module):
    """Zero activations below a threshold that is trained towards a target sparsity.

    The forward pass is hard: ``abs(x) > threshold``. The backward pass uses a sigmoid of width
    ``temperature`` in place of the step, the surrogate of binarised networks. Add
    ``strength * layer.penalty`` to the loss. A softplus keeps the threshold positive.

    Args:
        target_sparsity: wanted share of zeros, above 0 and below 1.
        channels: learn one threshold per entry of the last dimension; by default one for all.
        initial: initial threshold, positive.
        temperature: width of the surrogate in units of the activations.
        gradient: gradient of ``x``: ``"kept"`` or ``"straight-through"``.

    Attributes:
        penalty: (mean soft sparsity of the last call - target)^2, a differentiable scalar; ``None`` before.
        sparsity: share of zeros of the last call, a detached scalar on the device; ``None`` before.

    Raises:
        ValueError: numbers out of range.
    """

    def __init__(
        self,
        target_sparsity: float,
        *,
        channels: int | None = None,
        initial: float = 0.1,
        temperature: float = 0.1,
        gradient: Gradient = "kept",
    ) -> None:
        super().__init__()
        check_gradient(gradient)
        if not 0 < target_sparsity < 1:
            raise ValueError(f"target_sparsity must be above 0 and below 1, got {target_sparsity}")
        if initial <= 0 or temperature <= 0:
            raise ValueError(f"initial and temperature must be positive, got {initial} and {temperature}")
        if channels is not None and channels < 1:
            raise ValueError(f"channels must be at least 1, got {channels}")
        self.target_sparsity, self.temperature, self.gradient = target_sparsity, temperature, gradient
        self.raw_threshold = nn.Parameter(torch.full((channels or 1,), math.log(math.expm1(initial))))
        self.penalty: Tensor | None = None
        self.sparsity: Tensor | None = None

    @property
    def threshold(self) -> Tensor:
        """Positive threshold, (channels,) or (1,)."""
        return nn.functional.softplus(self.raw_threshold)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with zeros where its absolute value is at or below the threshold.

        Raises:
            ValueError: an empty batch, or another number of channels.
        """
        check_batch(x)
        if len(self.raw_threshold) not in (1, x.shape[-1]):
            raise ValueError(f"x has {x.shape[-1]} channels, the layer {len(self.raw_threshold)} thresholds")
        threshold = self.threshold.to(x.dtype)
        distance = x.detach().abs() - threshold
        soft = torch.sigmoid(distance / self.temperature)
        hard = ~(distance.detach() <= 0)
        self.penalty = (1 - soft.float().mean() - self.target_sparsity).square()
        self.sparsity = 1 - hard.float().mean()
        # The second term is exactly zero, but it carries the gradient of the threshold.
        return masked(x, hard, self.gradient) + x.detach() * (soft - soft.detach())

    def extra_repr(self) -> str:
        """Return the options for ``print(model)``."""
        return f"target_sparsity={self.target_sparsity}, temperature={self.temperature}"
