"""The mask cache against a plain model of it, and incremental masks against brute force."""

from __future__ import annotations

import itertools
from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.compression.incremental import IncrementalMask, project
from sparse_core.compression.mask_cache import MaskCache, PatternId, repeated_mask
from sparse_core.nm.masks import check_nm, nm_mask
from sparse_core.nm.pattern import TWO_FOUR, NMPattern


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 6)), max_size=40),
    packed=st.booleans(),
)
def test_the_least_recently_used_goes_first(steps: list[tuple[bool, int, int]], packed: bool) -> None:
    budget = 12 if packed else 96
    cache = MaskCache(budget, packed=packed)
    model: OrderedDict[int, torch.Tensor] = OrderedDict()

    def size(mask: torch.Tensor) -> int:
        return -(-mask.numel() // 8) if packed else mask.numel()

    for store, name, rows in steps:
        if store:
            mask = torch.rand((rows, 9), generator=torch.Generator().manual_seed(rows)) > 0.5
            assert cache.put(name, mask)
            model.pop(name, None)
            while sum(map(size, model.values())) + size(mask) > budget:
                model.popitem(last=False)
            model[name] = mask
        else:
            found = cache.get(name)
            assert (found is None) == (name not in model)
            if found is not None:
                model.move_to_end(name)
                assert torch.equal(found, model[name])
    statistics = cache.statistics
    assert statistics.masks == len(model) == len(cache)
    assert statistics.nbytes == sum(map(size, model.values())) <= budget
    assert all(name in cache for name in model)


def test_counts_and_masks_that_are_too_large() -> None:
    cache = MaskCache(10)
    assert not cache.put("large", torch.ones(11, dtype=torch.bool))
    made = []

    def make() -> torch.Tensor:
        made.append(1)
        return torch.ones(4, dtype=torch.bool)

    for _ in range(3):
        cache.get_or_make(("layer", 3), make)
    assert len(made) == 1
    statistics = cache.statistics
    assert (statistics.hits, statistics.misses, statistics.too_large) == (2, 1, 1)
    assert statistics.hit_rate == pytest.approx(2 / 3)
    assert "hit rate" in str(statistics)
    assert statistics.to_json()["nbytes"] == 4
    cache.drop(("layer", 3))
    assert len(cache) == 0
    with pytest.raises(TypeError, match=r"bool tensor, got torch\.float32"):
        cache.put("x", torch.ones(2))
    with pytest.raises(ValueError, match="budget_bytes"):
        MaskCache(-1)


def test_a_kept_mask_does_not_follow_the_one_it_was_made_of() -> None:
    cache = MaskCache()
    mask = torch.ones(4, dtype=torch.bool)
    cache.put("a", mask)
    mask.zero_()
    found = cache.get("a")
    assert found is not None
    assert bool(found.all())


def test_common_patterns_are_ready_as_far_as_the_budget_goes() -> None:
    cache = MaskCache(1 << 20)
    ready = cache.precompute((4, 24))
    assert ready == 2 + 4 + 6 + 28 + 70
    before = cache.statistics.misses
    for choice in range(6):
        mask = cache.repeated(TWO_FOUR, (4, 24), choice)
        check_nm(mask, 2, 4)
        assert torch.equal(mask, repeated_mask(TWO_FOUR, (4, 24), choice))
    assert cache.statistics.misses == before
    assert PatternId(2, 4, 5, 4, 24) in cache
    assert MaskCache(3 * 4 * 24).precompute((4, 24)) == 3
    assert MaskCache(1 << 20).precompute((4, 6)) == 2  # Only 1:2 divides six columns.
    with pytest.raises(ValueError, match="not divisible by m=4: take 8"):
        repeated_mask(TWO_FOUR, (2, 6))
    with pytest.raises(ValueError, match="choices 0 to 5, got 6"):
        repeated_mask(TWO_FOUR, (2, 8), 6)


@settings(max_examples=80)
@given(
    pattern=st.sampled_from([NMPattern(1, 2), NMPattern(2, 4), NMPattern(3, 5), NMPattern(4, 4)]),
    levels=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_projection_is_the_best_and_changes_least(pattern: NMPattern, levels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    average = torch.randint(levels, (2, 2 * pattern.m), generator=generator).float() / levels
    held = nm_mask(torch.randn(average.shape, generator=generator), pattern.n, pattern.m)
    found = project(average, held, pattern)
    check_nm(found, pattern.n, pattern.m)
    for row, group in itertools.product(range(2), range(2)):
        columns = slice(group * pattern.m, (group + 1) * pattern.m)
        values, kept = average[row, columns].tolist(), held[row, columns].tolist()
        best = max(
            itertools.combinations(range(pattern.m), pattern.n),
            key=lambda chosen: (
                round(sum(values[place] for place in chosen), 6),
                sum(kept[place] for place in chosen),
            ),
        )
        chosen = found[row, columns].nonzero().flatten().tolist()
        assert sum(values[place] for place in chosen) == pytest.approx(sum(values[place] for place in best))
        assert sum(kept[place] for place in chosen) == sum(kept[place] for place in best)


def test_average_follows_the_formula_and_noise_flips_nothing() -> None:
    weight = torch.randn((6, 16), generator=torch.Generator().manual_seed(0))
    mask = IncrementalMask.from_weight(weight, alpha=0.75)
    first = mask.mask.clone()
    other = ~first
    average = first.double()
    flips = []
    for step in range(1, 6):
        update = mask.update(other)
        average = 0.75 * average + 0.25 * other.double()
        assert torch.allclose(mask.average.double(), average)
        assert update.step == step
        flips.append(float(update.flipped))
        check_nm(update.mask, 2, 4)
    # 0.75 ** 3 is the first power below one half.
    assert flips == [0, 0, 1, 0, 0]
    assert torch.equal(mask.mask, other)


def test_scores_and_convolutions() -> None:
    weight = torch.randn((3, 8, 3, 3), generator=torch.Generator().manual_seed(0))
    pattern = NMPattern(2, 4, "channels_last")
    mask = IncrementalMask.from_weight(weight, pattern, alpha=0)
    changed = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    mask.update(changed.abs())
    assert torch.equal(mask.mask, nm_mask(changed, 2, 4, conv_layout="channels_last"))


def test_state_resumes_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    first = IncrementalMask.from_weight(torch.randn((4, 8), generator=generator))
    steps = [torch.randn((4, 8), generator=generator) for _ in range(6)]
    for step in steps[:3]:
        first.update(step)
    second = IncrementalMask(repeated_mask(TWO_FOUR, (4, 8)), alpha=0.1)
    second.load_state_dict(first.state_dict())
    for step in steps[3:]:
        assert torch.equal(first.update(step).mask, second.update(step).mask)
    assert torch.equal(first.average, second.average)
    with pytest.raises(ValueError, match="the state has 2:4"):
        IncrementalMask(repeated_mask(NMPattern(1, 4), (4, 8)), NMPattern(1, 4)).load_state_dict(
            first.state_dict()
        )


def test_bad_masks_are_refused() -> None:
    good = repeated_mask(TWO_FOUR, (2, 8))
    with pytest.raises(ValueError, match="the first mask is not 2:4: row 0, group 0"):
        IncrementalMask(torch.ones((2, 8), dtype=torch.bool))
    with pytest.raises(TypeError, match="mask must be bool"):
        IncrementalMask(torch.ones(2, 8))
    with pytest.raises(ValueError, match="alpha"):
        IncrementalMask(good, alpha=1.0)
    with pytest.raises(ValueError, match="the new mask must have shape"):
        IncrementalMask(good).update(good[:1])
    with pytest.raises(TypeError, match="floating-point scores"):
        IncrementalMask(good).update(good.int())
