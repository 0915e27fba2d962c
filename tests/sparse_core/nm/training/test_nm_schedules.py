"""Schedules as functions of the step: ends, monotony, and which groups and layers go first."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from sparse_core.nm.masks import block_mask, check_nm, nm_mask
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.training.schedules import (
    LayerwiseSchedule,
    ProgressiveSchedule,
    Unit,
    warmup_cosine,
    warmup_cosine_factor,
)

UNITS: tuple[Unit, ...] = ("weights", "groups", "rows")


def scores(out: int = 12, columns: int = 32, seed: int = 0) -> torch.Tensor:
    return torch.rand(out, columns, generator=torch.Generator().manual_seed(seed))


@given(begin=st.integers(0, 50), length=st.integers(1, 100), step=st.integers(0, 200))
def test_progress_is_the_cubic_of_the_paper(begin: int, length: int, step: int) -> None:
    schedule = ProgressiveSchedule(begin, begin + length)
    done = schedule.progress_at(step)
    if step <= begin:
        assert done == 0.0
    elif step >= begin + length:
        assert done == 1.0
    else:
        # Zhu and Gupta's s_t with initial sparsity 0 and final sparsity 1.
        assert done == pytest.approx(1.0 + (0.0 - 1.0) * (1 - (step - begin) / length) ** 3)


@settings(max_examples=30)
@given(
    n=st.integers(1, 8),
    m=st.sampled_from([4, 8, 16]),
    unit=st.sampled_from(UNITS),
    length=st.integers(1, 20),
)
def test_masks_go_from_dense_to_the_pattern_and_never_back(n: int, m: int, unit: Unit, length: int) -> None:
    pattern = NMPattern(min(n, m), m)
    score = scores()
    schedule = ProgressiveSchedule(3, 3 + length, unit)
    masks = [schedule.mask_at(step, "layer", score, pattern) for step in range(3 + length + 3)]
    assert masks[0].all()
    assert masks[3].all()
    assert torch.equal(masks[-1], nm_mask(score, pattern.n, m))
    assert torch.equal(masks[3 + length], masks[-1])
    for earlier, later in pairwise(masks):
        assert not (later & ~earlier).any()


def test_intermediate_patterns_lower_n() -> None:
    schedule = ProgressiveSchedule(0, 100)
    patterns = [schedule.pattern_at(step, NMPattern(2, 8, "channels_last")) for step in range(101)]
    assert {pattern.conv_layout for pattern in patterns if isinstance(pattern, NMPattern)} == {
        "channels_last"
    }
    counts = [pattern.n for pattern in patterns if isinstance(pattern, NMPattern)]
    assert sorted(set(counts), reverse=True) == [8, 7, 6, 5, 4, 3, 2]
    assert counts == sorted(counts, reverse=True)
    for step in (0, 20, 50, 100):
        pattern = schedule.pattern_at(step, NMPattern(2, 8))
        assert isinstance(pattern, NMPattern)
        check_nm(schedule.mask_at(step, "layer", scores(), NMPattern(2, 8)), pattern.n, 8)
        assert abs(pattern.n - (8 - 6 * schedule.progress_at(step))) <= 0.5


@pytest.mark.parametrize("unit", ["groups", "rows"])
def test_cheapest_groups_and_rows_go_first(unit: Unit) -> None:
    score = scores()
    schedule = ProgressiveSchedule(0, 10, unit)
    mask = schedule.mask_at(3, "layer", score, NMPattern(1, 4))
    width = 4 if unit == "groups" else 32
    final = nm_mask(score, 1, 4)
    lost = score.masked_fill(final, 0).reshape(-1, width).sum(1).tolist()
    pruned = (~mask.reshape(-1, width)).any(1).tolist()
    assert sum(pruned) == round(len(lost) * (1 - 0.7**3))
    ranked = sorted(range(len(lost)), key=lambda place: lost[place])
    assert {place for place, gone in enumerate(pruned) if gone} == set(ranked[: sum(pruned)])
    assert torch.equal(mask.reshape(-1, width)[pruned], final.reshape(-1, width)[pruned])


def test_convolutions_keep_their_layout() -> None:
    score = torch.rand(6, 8, 3, 3, generator=torch.Generator().manual_seed(2))
    pattern = NMPattern(2, 4, "channels_last")
    schedule = ProgressiveSchedule(0, 10, "groups")
    final = nm_mask(score, 2, 4, conv_layout="channels_last")
    assert torch.equal(schedule.mask_at(10, "layer", score, pattern), final)
    half = schedule.mask_at(2, "layer", score, pattern)
    kept = half.permute(0, 2, 3, 1).reshape(-1, 4).sum(1)
    assert set(kept.tolist()) == {2, 4}


@pytest.mark.parametrize("unit", UNITS)
def test_blocks_are_dropped_more_and_more(unit: Unit) -> None:
    score = scores(32, 64)
    schedule = ProgressiveSchedule(0, 10, unit)
    pattern = Block(8, 0.75)
    shares = [float(schedule.mask_at(step, "layer", score, pattern).float().mean()) for step in range(11)]
    assert shares[0] == 1.0
    assert shares[-1] == 0.25
    assert shares == sorted(shares, reverse=True)
    assert torch.equal(schedule.mask_at(10, "layer", score, pattern), block_mask(score, pattern))


@given(layers=st.integers(1, 7), begin=st.integers(0, 20), length=st.integers(0, 40))
def test_layers_follow_their_order(layers: int, begin: int, length: int) -> None:
    order = [f"layer{place}" for place in range(layers)]
    schedule = LayerwiseSchedule(order, begin, begin + length)
    reached = [schedule.layers_at(step) for step in range(begin + length + 3)]
    if begin:
        assert reached[begin - 1] == ()
    assert order[0] in reached[begin]
    assert reached[begin + length] == tuple(order)
    if length and layers > 1:
        assert order[-1] not in reached[begin + length - 1]
    for earlier, later in pairwise(reached):
        assert later[: len(earlier)] == earlier
    # At most one layer starts a step when there are steps enough.
    if length >= layers:
        assert max(len(b) - len(a) for a, b in pairwise(reached)) <= 1


def test_a_layer_is_dense_until_its_turn() -> None:
    schedule = LayerwiseSchedule(("b", "a"), 5, 10)
    assert schedule.mask_at(7, "a", scores(), NMPattern(2, 4)).all()
    assert torch.equal(schedule.mask_at(7, "b", scores(), NMPattern(2, 4)), nm_mask(scores(), 2, 4))
    assert torch.equal(schedule.mask_at(10, "a", scores(), NMPattern(2, 4)), nm_mask(scores(), 2, 4))
    with pytest.raises(ValueError, match="no layer 'c': b, a"):
        schedule.mask_at(10, "c", scores(), NMPattern(2, 4))


def test_bad_schedules() -> None:
    with pytest.raises(ValueError, match="0 <= begin < end"):
        ProgressiveSchedule(5, 5)
    with pytest.raises(ValueError, match="unit must be one of weights, groups, rows"):
        ProgressiveSchedule(0, 5, "columns")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 <= begin <= end"):
        LayerwiseSchedule(("a",), 5, 4)
    with pytest.raises(ValueError, match="each layer once"):
        LayerwiseSchedule(("a", "a"), 0, 4)
    with pytest.raises(ValueError, match="each layer once"):
        LayerwiseSchedule((), 0, 4)


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
