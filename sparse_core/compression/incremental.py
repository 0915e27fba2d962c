"""Masks that follow a moving average, for continual learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sparse_core.nm.masks import check_nm, nm_mask, pattern_mask
from sparse_core.nm.pattern import TWO_FOUR, NMPattern, check_groups, weight_from_matrix, weight_matrix


@dataclass(frozen=True)
class MaskUpdate:
    """Result of :meth:`IncrementalMask.update`.

    Attributes:
        step: number of the update, from 1.
        mask: the new bool mask with exactly n true per group.
        flipped: () float32 share of all mask entries that changed, on the mask's device.
    """

    step: int
    mask: Tensor
    flipped: Tensor


class IncrementalMask:
    """A moving average of masks, ``M ← α M + (1 - α) M_new``, projected to n:m at every step.

    One noisy batch rarely flips an entry. A lasting change takes effect after about log(1/2) / log(α) steps.
    Among equal averages the kept position wins, then the lower one, so that ties do not make the mask
    flicker. A step does not wait for the device.

    Args:
        mask: initial bool mask with exactly n true per group.
        pattern: n, m and the column order of a convolution.
        alpha: weight of the old average, at least 0 (only the new mask counts) and below 1.

    Attributes:
        average: float32 average in [0, 1], of the mask's shape.
        mask: current bool mask with exactly n true per group.
        step: number of updates so far.

    Raises:
        TypeError: the mask is not bool.
        ValueError: the mask is not n:m, or ``alpha`` is out of range.
    """

    def __init__(self, mask: Tensor, pattern: NMPattern = TWO_FOUR, *, alpha: float = 0.9) -> None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask must be bool, got {mask.dtype}")
        if not 0 <= alpha < 1:
            raise ValueError(f"alpha must be at least 0 and below 1, got {alpha}")
        check_nm(mask, pattern.n, pattern.m, conv_layout=pattern.conv_layout, name="the first mask")
        self.pattern = pattern
        self.alpha = alpha
        self.mask = mask.clone()
        self.average = mask.float()
        self.step = 0

    @classmethod
    def from_weight(
        cls, weight: Tensor, pattern: NMPattern = TWO_FOUR, *, alpha: float = 0.9
    ) -> IncrementalMask:
        """Start from the mask of the largest weights."""
        return cls(pattern_mask(weight, pattern), pattern, alpha=alpha)

    def update(self, new: Tensor) -> MaskUpdate:
        """Move one step towards ``new``.

        Args:
            new: a bool mask of the same shape, not necessarily n:m; or floating-point scores or weights,
                whose n largest absolute values per group form the new mask. NaN counts as the smallest.

        Raises:
            TypeError: ``new`` holds integers.
            ValueError: ``new`` has another shape.
        """
        if new.shape != self.mask.shape:
            raise ValueError(f"the new mask must have shape {tuple(self.mask.shape)}, got {tuple(new.shape)}")
        if new.dtype != torch.bool and not new.is_floating_point():
            raise TypeError(f"the new mask must be bool, or floating-point scores; got {new.dtype}")
        if new.dtype != torch.bool:
            new = pattern_mask(new, self.pattern, check_nan=False)
        self.average.mul_(self.alpha).add_(new.to(self.average.dtype), alpha=1 - self.alpha)
        projected = project(self.average, self.mask, self.pattern)
        flipped = (projected != self.mask).float().mean()
        self.mask = projected
        self.step += 1
        return MaskUpdate(self.step, projected, flipped)

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which :meth:`load_state_dict` resumes bit for bit."""
        return {
            "average": self.average.clone(),
            "mask": self.mask.clone(),
            "step": self.step,
            "alpha": self.alpha,
            "pattern": [self.pattern.n, self.pattern.m, self.pattern.conv_layout],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state.

        Raises:
            ValueError: the state has another pattern or shape.
        """
        pattern = NMPattern(*state["pattern"])
        if pattern != self.pattern or state["mask"].shape != self.mask.shape:
            raise ValueError(
                f"the state has {pattern} and shape {tuple(state['mask'].shape)}, this mask {self.pattern}"
                f" and shape {tuple(self.mask.shape)}"
            )
        self.average = state["average"].to(self.average).clone()
        self.mask = state["mask"].to(self.mask).clone()
        self.step, self.alpha = int(state["step"]), float(state["alpha"])


def project(average: Tensor, held: Tensor, pattern: NMPattern) -> Tensor:
    """Return the n:m mask that keeps the n largest averages of each group, (same shape) bool.

    Among equal values, those that ``held`` keeps come first, then lower positions: no more entries change
    than necessary.
    """
    matrix = weight_matrix(average, pattern.conv_layout, name="average")
    check_groups(matrix.shape[1], pattern.m, name="average")
    groups = matrix.reshape(matrix.shape[0], matrix.shape[1] // pattern.m, pattern.m)
    kept = weight_matrix(held, pattern.conv_layout, name="held").reshape(groups.shape)
    ordered, order = torch.sort(groups, dim=2, stable=True)
    above = torch.nn.functional.pad((ordered[..., 1:] > ordered[..., :-1]).long().cumsum(dim=2), (1, 0))
    places = torch.empty_like(above).scatter_(2, order, above)
    # Equal averages share a rank; doubling it leaves room to prefer the position that is kept now.
    score = (places * 2 + kept).reshape(matrix.shape)
    chosen = nm_mask(score, pattern.n, pattern.m, score)
    return weight_from_matrix(chosen, tuple(average.shape), pattern.conv_layout).contiguous()
