"""Schedules from dense to sparse over training steps; pure functions of the step, without state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import Block, NMPattern, Pattern, weight_from_matrix, weight_matrix

Unit = Literal["weights", "groups", "rows"]


class Schedule(Protocol):
    """Interface of a schedule for :class:`sparse_core.nm.training.MaskRefresher`."""

    @property
    def end(self) -> int:
        """First step with the final patterns."""

    def mask_at(
        self, step: int, name: str, score: Tensor, pattern: Pattern, *, check_nan: bool = True
    ) -> Tensor:
        """Return the bool mask of layer ``name`` at ``step``, of the shape of ``score``."""


@dataclass(frozen=True)
class ProgressiveSchedule:
    """All layers together, from dense at ``begin`` to the pattern at ``end``; slows down at the end.

    The progress at time ``t`` in [0, 1] is ``1 - (1 - t)³`` (Zhu and Gupta, "To prune, or not to prune",
    2017, eq. 1).

    Args:
        begin: last step at which everything is dense.
        end: first step with the final pattern.
        unit: what grows. ``"weights"`` lowers n from m to its final value. ``"groups"`` and ``"rows"`` prune
            a growing share of groups or matrix rows to the final pattern, those that lose the least score
            first. For :class:`Block` patterns the share of dropped blocks grows, for any unit.

    Raises:
        ValueError: not 0 <= begin < end, or an unknown unit.
    """

    begin: int
    end: int
    unit: Unit = "weights"

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end:
            raise ValueError(f"steps must satisfy 0 <= begin < end, got begin={self.begin}, end={self.end}")
        if self.unit not in get_args(Unit):
            raise ValueError(f"unit must be one of {', '.join(get_args(Unit))}; got {self.unit!r}")

    def progress_at(self, step: int) -> float:
        """Return the progress from dense to the final pattern, 0 to 1."""
        time = min(1.0, max(0.0, (step - self.begin) / (self.end - self.begin)))
        return 1 - (1 - time) ** 3

    def pattern_at(self, step: int, pattern: Pattern) -> Pattern:
        """Return the pattern at ``step``; for groups or rows the final one, used for a share of them."""
        progress = self.progress_at(step)
        if isinstance(pattern, Block):
            return Block(pattern.size, pattern.sparsity * progress)
        if self.unit != "weights":
            return pattern
        # Half-way cases round up, so that the final step is exact; round() would round to even.
        dropped = int((pattern.m - pattern.n) * progress + 0.5)
        return NMPattern(pattern.m - dropped, pattern.m, pattern.conv_layout)

    def mask_at(
        self, step: int, name: str, score: Tensor, pattern: Pattern, *, check_nan: bool = True
    ) -> Tensor:
        """Return the mask of a layer at ``step``; see :class:`Schedule`."""
        mask = pattern_mask(score, self.pattern_at(step, pattern), score, check_nan=check_nan)
        if self.unit == "weights" or isinstance(pattern, Block):
            return mask
        layout = pattern.conv_layout
        scores = weight_matrix(score, layout)
        kept = weight_matrix(mask, layout)
        width = pattern.m if self.unit == "groups" else scores.shape[1]
        lost = scores.to(torch.float32).masked_fill(kept, 0).reshape(-1, width).sum(dim=1)
        pruned = torch.zeros_like(lost, dtype=torch.bool)
        count = int(len(lost) * self.progress_at(step) + 0.5)
        pruned[torch.sort(lost, stable=True).indices[:count]] = True
        partial = kept.reshape(-1, width) | ~pruned[:, None]
        return weight_from_matrix(partial.reshape(scores.shape), tuple(score.shape), layout)


@dataclass(frozen=True)
class LayerwiseSchedule:
    """Layer by layer: the first at ``begin``, the last at ``end``, the others evenly between.

    Args:
        order: layer names in the order of pruning; ``SensitivityReport.ranking()`` returns the least
            sensitive first.
        begin: step at which the first layer is pruned.
        end: step at which the last layer is pruned.

    Raises:
        ValueError: not 0 <= begin <= end, no layers, or a layer twice.
    """

    order: Sequence[str]
    begin: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end:
            raise ValueError(f"steps must satisfy 0 <= begin <= end, got begin={self.begin}, end={self.end}")
        if not self.order or len(set(self.order)) != len(self.order):
            raise ValueError(f"order must name each layer once, got {list(self.order)}")

    def layers_at(self, step: int) -> tuple[str, ...]:
        """Return the layers that are pruned at ``step``."""
        if step >= self.end:
            return tuple(self.order)
        if step < self.begin:
            return ()
        done = (step - self.begin) * (len(self.order) - 1) // (self.end - self.begin)
        return tuple(self.order[: 1 + done])

    def mask_at(
        self, step: int, name: str, score: Tensor, pattern: Pattern, *, check_nan: bool = True
    ) -> Tensor:
        """Return the mask of a layer at ``step``; see :class:`Schedule`.

        Raises:
            ValueError: ``order`` does not contain the layer.
        """
        if name not in self.order:
            raise ValueError(f"the order of the schedule has no layer {name!r}: {', '.join(self.order)}")
        reached = name in self.layers_at(step)
        return pattern_mask(score, pattern if reached else None, score, check_nan=check_nan)


def warmup_cosine_factor(step: int, warmup_steps: int, total_steps: int, floor: float = 0.0) -> float:
    """Return the factor of the learning rate at ``step``.

    It rises linearly from ``1 / warmup_steps`` at step 0 to 1 at step ``warmup_steps - 1``. From step
    ``warmup_steps`` it falls along half a cosine from 1 to ``floor`` at ``total_steps`` (Loshchilov and
    Hutter, "SGDR", 2017, eq. 5, without restarts), and stays there.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    time = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * time))


def warmup_cosine(optimizer: Optimizer, warmup_steps: int, total_steps: int, floor: float = 0.0) -> LambdaLR:
    """Return a torch scheduler with :func:`warmup_cosine_factor`; step it once per training step.

    Args:
        optimizer: its learning rates are the peaks.
        warmup_steps: 0 or more.
        total_steps: steps of the training, more than ``warmup_steps``.
        floor: share of the peak at the end, 0 to 1.

    Raises:
        ValueError: steps or floor out of range.
    """
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            f"steps must satisfy 0 <= warmup_steps < total_steps, got {warmup_steps} and {total_steps}"
        )
    if not 0 <= floor <= 1:
        raise ValueError(f"floor must be between 0 and 1, got {floor}")
    return LambdaLR(optimizer, lambda step: warmup_cosine_factor(step, warmup_steps, total_steps, floor))
