"""Learning rate with a linear warm-up and a cosine decay."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


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
