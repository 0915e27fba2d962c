"""Masks that move towards new ones step by step, for learning that never stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sparse_core.nm.masks import check_nm, nm_mask, pattern_mask
from sparse_core.nm.pattern import TWO_FOUR, NMPattern, check_groups, weight_from_matrix, weight_matrix


@dataclass(frozen=True)
class MaskUpdate:
    """What :meth:`IncrementalMask.update` did.

    Attributes:
        step: number of the update, from 1.
        mask: bool, the new mask; exactly n in each group.
        flipped: () float32, share of all mask entries that changed; on the mask's device.
    """

    step: int
    mask: Tensor
    flipped: Tensor


class IncrementalMask:
    """A moving average of masks, ``M ← α M + (1 - α) M_new``, cut to exactly n of m at every step.

    One noisy batch moves the average a little and mostly flips nothing; a change that lasts comes through
    after about log(1/2) / log(α) steps. Of equal averages the position that is kept now stays, then the lower
    one: ties never make the mask flicker. A step reads nothing back to the host.

    Args:
        mask: bool, exactly n in each group: where to start.
        pattern: n and m, and the order of a convolution's columns.
        alpha: share of the average that stays at a step, 0 (only the new mask counts) to below 1.

    Attributes:
        average: float32 of the mask's shape, in [0, 1].
        mask: bool, exactly n in each group.
        step: updates so far.

    Raises:
        TypeError: a mask that is not bool.
        ValueError: a mask that is not n:m, or ``alpha`` out of range.
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
        """One step towards ``new``.

        Args:
            new: bool, a mask of the same shape (not necessarily n:m); or floating point, scores or a weight
                of which the n largest absolute values of each group make the new mask. NaN counts as the
                smallest.

        Raises:
            TypeError: whole numbers.
            ValueError: another shape.
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
        """Everything that :meth:`load_state_dict` needs to go on to the bit."""
        return {
            "average": self.average.clone(),
            "mask": self.mask.clone(),
            "step": self.step,
            "alpha": self.alpha,
            "pattern": [self.pattern.n, self.pattern.m, self.pattern.conv_layout],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: of another pattern or shape.
        """
        pattern = NMPattern(*state["pattern"])
        if pattern != self.pattern or state["mask"].shape != self.mask.shape:
            raise ValueError(
                f"the state is of {pattern} {tuple(state['mask'].shape)}, this mask of {self.pattern}"
                f" {tuple(self.mask.shape)}"
            )
        self.average = state["average"].to(self.average).clone()
        self.mask = state["mask"].to(self.mask).clone()
        self.step, self.alpha = int(state["step"]), float(state["alpha"])


def project(average: Tensor, held: Tensor, pattern: NMPattern) -> Tensor:
    """The n:m mask nearest to an average: the n largest of each group.

    Of equal values those that ``held`` keeps come first, then lower positions: the sum of the kept averages
    is the largest possible, and no more entries change than that needs.

    Args:
        average: floating point, (out, in) or (out, in, kernel height, kernel width).
        held: bool of its shape.
        pattern: n and m, and the order of a convolution's columns.

    Returns:
        Bool of the same shape, exactly n in each group.

    Raises:
        ValueError: m does not divide the columns.
    """
    matrix = weight_matrix(average, pattern.conv_layout, name="average")
    check_groups(matrix.shape[1], pattern.m, name="average")
    groups = matrix.reshape(matrix.shape[0], matrix.shape[1] // pattern.m, pattern.m)
    kept = weight_matrix(held, pattern.conv_layout, name="held").reshape(groups.shape)
    ordered, order = torch.sort(groups, dim=2, stable=True)
    above = torch.nn.functional.pad((ordered[..., 1:] > ordered[..., :-1]).long().cumsum(dim=2), (1, 0))
    places = torch.empty_like(above).scatter_(2, order, above)
    # Equal averages share a place; twice that leaves room for who is kept now.
    score = (places * 2 + kept).reshape(matrix.shape)
    chosen = nm_mask(score, pattern.n, pattern.m, score)
    return weight_from_matrix(chosen, tuple(average.shape), pattern.conv_layout).contiguous()
