"""Importance: its parts, their weights, and the words."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.config import PARTS, ImportanceWeights
from memory.observe.importance import importance, rarity_of

SHARE = st.floats(0.0, 1.0)
SIMILARITY = st.one_of(st.floats(-1.0, 1.0), st.just(math.nan))


@given(SIMILARITY, st.floats(-1e6, 1e6), SHARE, SHARE, st.booleans())
def test_total_is_the_weighted_mean_of_the_parts_and_a_mark_closes_the_gap(
    similarity: float, reward: float, doubt: float, rare: float, marked: bool
) -> None:
    weights = ImportanceWeights(novelty=3.0, reward=1.0, uncertainty=0.5, rarity=2.0, mark=0.6)
    scored = importance(
        nearest_similarity=similarity,
        reward=reward,
        uncertainty=doubt,
        rarity=rare,
        marked=marked,
        weights=weights,
    )
    novelty = 1.0 if math.isnan(similarity) else min(1.0, max(0.0, 1.0 - similarity))
    base = (3.0 * novelty + (1.0 - math.exp(-abs(reward))) + 0.5 * doubt + 2.0 * rare) / 6.5
    expected = base + 0.6 * (1.0 - base) * marked
    assert scored.total[0] == pytest.approx(expected, abs=1e-12)
    assert 0.0 <= scored.total[0] <= 1.0
    assert sum(values[0] for values in scored.contributions.values()) == pytest.approx(expected, abs=1e-12)


def test_arrays_and_numbers_are_broadcast() -> None:
    rewards = np.array([0.0, 1.0, -1.0])
    scored = importance(nearest_similarity=0.5, reward=rewards)
    alone = [importance(nearest_similarity=0.5, reward=reward).total[0] for reward in rewards]
    assert len(scored.total) == 3
    np.testing.assert_array_equal(scored.total, alone)
    assert scored.total[1] == scored.total[2] > scored.total[0]


def test_nothing_gives_nothing() -> None:
    assert len(importance(nearest_similarity=np.zeros(0)).total) == 0


def test_the_largest_contribution_comes_first_and_those_of_zero_are_not_named() -> None:
    scored = importance(
        nearest_similarity=[math.nan, 1.0], reward=[0.0, 100.0], rarity=[0.1, 0.0], marked=[False, True]
    )
    assert str(scored.explain(0)) == "; ".join(
        [
            "importance 0.52",
            "nothing similar is known here (+0.50)",
            "its class is common, rarity 0.10 (+0.02)",
        ]
    )
    assert str(scored.explain(1)) == "; ".join(
        [
            "importance 1.00",
            "marked by the user (+0.80)",
            "high reward, 1.00 (+0.20)",
        ]
    )
    assert {name: values[1] for name, values in scored.parts.items()} == {
        "novelty": 0.0,
        "reward": 1.0,
        "uncertainty": 0.0,
        "rarity": 0.0,
        "mark": 1.0,
    }


@pytest.mark.parametrize("name", PARTS)
def test_each_part_alone_decides_when_the_others_weigh_nothing(name: str) -> None:
    weights = ImportanceWeights(**{**dict.fromkeys(PARTS, 0.0), name: 0.3})
    scored = importance(nearest_similarity=0.25, reward=2.0, uncertainty=0.4, rarity=0.7, weights=weights)
    expected = {"novelty": 0.75, "reward": 1 - math.exp(-2.0), "uncertainty": 0.4, "rarity": 0.7}
    assert scored.total[0] == pytest.approx(expected[name])


def rarities(labels: list[str], counts: dict[str, int]) -> np.ndarray:
    seen, classes = sum(counts.values()), len(counts)
    return np.array(
        [rarity_of(counts.get(label, 0), seen, classes + (label not in counts)) for label in labels]
    )


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**6)))
def test_rarity_falls_with_the_count_and_is_highest_for_a_new_label(counts: dict[str, int]) -> None:
    labels = [*sorted(counts, key=lambda name: counts[name]), "new"]
    rarity = rarities(labels, counts)
    assert ((rarity >= 0.0) & (rarity <= 1.0)).all()
    assert rarity[-1] == pytest.approx(1.0)
    assert (np.diff(rarity[:-1]) <= 1e-12).all()


def test_rarity_is_minus_the_log_of_the_frequency() -> None:
    found = rarities(["a", "b"], {"a": 89, "b": 9})
    np.testing.assert_allclose(found, [-math.log(0.9) / math.log(100), -math.log(0.1) / math.log(100)])


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"novelty": -0.1}, ValueError, "novelty must be finite and not negative"),
        ({"reward": math.inf}, ValueError, "reward must be finite"),
        ({"mark": 1.5}, ValueError, "mark must be from 0 to 1"),
        ({"reward_scale": 0.0}, ValueError, "reward_scale must be above 0"),
        (dict.fromkeys(PARTS, 0.0), ValueError, "at least one of"),
        ({"rarity": "0.1"}, TypeError, "rarity must be a number"),
    ],
)
def test_bad_weights_are_named(values: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ImportanceWeights(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nearest_similarity": 1.5}, "nearest_similarity is out of range"),
        ({"nearest_similarity": 0.0, "reward": math.nan}, "reward is out of range"),
        ({"nearest_similarity": 0.0, "uncertainty": -0.1}, "uncertainty is out of range"),
        ({"nearest_similarity": 0.0, "rarity": [0.0, 2.0]}, "rarity is out of range"),
        ({"nearest_similarity": np.zeros((2, 2))}, "one-dimensional"),
    ],
)
def test_bad_numbers_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        importance(**values)
