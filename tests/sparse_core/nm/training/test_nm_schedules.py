"""The learning rate of `warmup_cosine` at its ends, and when it resumes."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from sparse_core.nm.training.schedules import warmup_cosine, warmup_cosine_factor


def optimizer(rate: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], rate)


def rates(scheduler: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_both_parts_are_those_of_torch() -> None:
    found = rates(warmup_cosine(optimizer(), 8, 40, floor=0.1), 40)
    assert found[:8] == pytest.approx(rates(LinearLR(optimizer(), 1 / 8, 1.0, 7), 8))
    assert found[8:] == pytest.approx(rates(CosineAnnealingLR(optimizer(), 32, eta_min=0.01), 32))


def test_ends_and_floor() -> None:
    assert warmup_cosine_factor(0, 4, 10) == 0.25
    assert warmup_cosine_factor(3, 4, 10) == warmup_cosine_factor(4, 4, 10) == 1.0
    assert warmup_cosine_factor(7, 4, 10) == pytest.approx(0.5)
    assert warmup_cosine_factor(10, 4, 10) == warmup_cosine_factor(99, 4, 10) == 0.0
    assert warmup_cosine_factor(10, 4, 10, floor=0.2) == pytest.approx(0.2)
    assert warmup_cosine_factor(0, 0, 10) == 1.0


def test_a_scheduler_resumes() -> None:
    first = warmup_cosine(optimizer(), 3, 20)
    whole = rates(first, 20)
    begun = warmup_cosine(optimizer(), 3, 20)
    rates(begun, 7)
    again = warmup_cosine(optimizer(), 3, 20)
    again.load_state_dict(begun.state_dict())
    with warnings.catch_warnings():
        # A fresh optimiser has not stepped yet.
        warnings.simplefilter("ignore", UserWarning)
        assert rates(again, 13) == pytest.approx(whole[7:])


def test_bad_steps() -> None:
    with pytest.raises(ValueError, match="0 <= warmup_steps < total_steps, got 5 and 5"):
        warmup_cosine(optimizer(), 5, 5)
    with pytest.raises(ValueError, match="got -1 and 5"):
        warmup_cosine(optimizer(), -1, 5)
    with pytest.raises(ValueError, match="floor must be between 0 and 1"):
        warmup_cosine(optimizer(), 1, 5, floor=1.5)
