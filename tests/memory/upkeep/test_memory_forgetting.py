"""Forgetting: the keep-values, and who goes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.config import POLICIES, Policy
from memory.upkeep.forgetting import Records, keep_values, select_to_forget
from memory.wording.words import DAY_S

DAY_NS = 86_400 * 10**9
NOW = 1_700_000_000 * 10**9


def records(*rows: tuple, map_ids: list[str] | None = None) -> Records:
    """Rows of (id, days unused, uses, value, marked)."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), (), ()]
    return Records(
        np.array(columns[0], dtype=np.int64),
        np.array([NOW - round(days * DAY_NS) for days in columns[1]], dtype=np.int64),
        np.array(columns[2], dtype=np.int64),
        np.array(columns[3], dtype=np.float64),
        np.array(columns[4], dtype=bool),
        map_ids or ["home"] * len(rows),
    )


ROWS = st.lists(
    st.tuples(
        st.integers(-3, 400), st.integers(0, 5), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans(),
        st.sampled_from(["home", "yard", "shop"]),
    ),
    max_size=40,
)  # fmt: skip


def test_keep_values_are_the_formulas() -> None:
    found = records((1, 0, 3, 0.5, False), (2, 1, 0, 1.0, False), (3, 30, 9, 0.1, False))
    lru, frequency = Policy(name="lru"), Policy(name="frequency")
    np.testing.assert_allclose(keep_values(lru, found, NOW), [0.0, -86_400.0, -30 * 86_400.0])
    np.testing.assert_array_equal(keep_values(frequency, found, NOW), [3.0, 0.0, 9.0])
    halves = [1.0, 2 ** (-1 / 15), 0.25]
    decay = Policy(name="decay", half_life_s=15 * DAY_S)
    np.testing.assert_allclose(keep_values(decay, found, NOW), halves)
    value_freshness = Policy(name="value_freshness", half_life_s=15 * DAY_S)
    np.testing.assert_allclose(keep_values(value_freshness, found, NOW), np.array(halves) * [0.5, 1.0, 0.1])


def test_the_least_value_stays_and_later_uses_are_now() -> None:
    found = records((1, -3, 0, 0.5, False), (2, 1e-5, 0, 0.5, False), (3, 0, 0, 0.25, False))
    policy = Policy(name="value_freshness", least=0.5)
    chosen = select_to_forget(found, policy, None, NOW)
    assert {id: (reason.sort, reason.unused_s) for id, reason in chosen.items()} == {  # type: ignore[union-attr]
        2: ("faded", pytest.approx(0.864)),
        3: ("faded", 0.0),
    }
    (full,) = select_to_forget(found, Policy(name="value_freshness"), 2, NOW - DAY_NS).values()
    assert full.unused_s == 0.0  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="now_ns"):
        select_to_forget(found, policy, None, 0.5)  # type: ignore[arg-type]


@given(ROWS, st.sampled_from(POLICIES), st.integers(0, 12))
def test_the_worst_of_each_map_go_and_no_more(rows: list, name: str, capacity: int) -> None:
    maps = [row[4] for row in rows]
    table = records(*[(100 - i, *row[:4]) for i, row in enumerate(rows)], map_ids=maps)
    policy = Policy(name=name)  # type: ignore[arg-type]
    chosen = select_to_forget(table, policy, capacity, NOW)
    expected: list[int] = []
    for place in sorted(set(maps)):
        keyed = []
        for i, (days, uses, value, marked, where) in enumerate(rows):
            fresh = 2.0 ** (-max(days, 0) / 30)
            keep = {"lru": -days, "frequency": uses, "decay": fresh, "value_freshness": value * fresh}[name]
            if where == place and not marked:
                keyed.append(((keep, -days, 100 - i), 100 - i))
        excess = max(0, maps.count(place) - capacity)
        expected += [number for _, number in sorted(keyed)[:excess]]
    assert list(chosen) == expected


def test_without_a_capacity_nothing_goes() -> None:
    table = records(*[(i, i, 0, 1.0, False) for i in range(6)], map_ids=["home"] * 3 + ["yard"] * 3)
    assert select_to_forget(table, Policy(name="lru"), None, NOW) == {}


def test_marked_memories_never_go_even_at_capacity_zero() -> None:
    table = records((1, 900, 0, 0.0, True), (2, 0, 9, 1.0, False))
    assert list(select_to_forget(table, Policy(least=0.5), 0, NOW)) == [2]


def test_what_has_faded_goes_where_there_is_room() -> None:
    table = records((1, 30, 0, 1.0, False), (2, 29, 0, 1.0, False), (3, 300, 0, 1.0, False))
    chosen = select_to_forget(table, Policy(name="decay", least=0.505), 100, NOW)
    assert list(chosen) == [3, 1]
    assert str(chosen[1]) == (
        "its keep-value is below 0.505: decayed to 0.5, not used for 30.0 days, half-life 30.0 days"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lru", "not used for 90.0 days"),
        ("frequency", "used 4 times"),
        ("decay", "decayed to 0.125, not used for 90.0 days, half-life 30.0 days"),
        (
            "value_freshness",
            "value 0.80 has decayed to 0.1, not used for 90.0 days, half-life 30.0 days",
        ),
    ],
)
def test_reasons_name_map_capacity_and_keep_value(name: str, words: str) -> None:
    table = records((1, 90, 4, 0.8, False), (2, 0, 5, 0.9, False))
    chosen = select_to_forget(table, Policy(name=name), 1, NOW)  # type: ignore[arg-type]
    assert tuple(map(str, chosen.values())) == (f"map 'home' has 2 memories, its capacity is 1: {words}",)


def test_the_clock_may_go_backwards_and_times_may_be_anything() -> None:
    low, high = -(2**63), 2**63 - 1
    table = Records(
        np.array([1, 2, 3]),
        np.array([low, high, high - 1]),
        np.zeros(3, dtype=np.int64),
        np.ones(3),
        np.zeros(3, dtype=bool),
        ["m"] * 3,
    )
    assert (keep_values(Policy(name="decay", half_life_s=1.0), table, 0) == [0.0, 1.0, 1.0]).all()
    # The two later ones differ by a nanosecond, which a float64 does not hold.
    for name in ("lru", "decay"):
        assert list(select_to_forget(table, Policy(name=name), 1, 0)) == [1, 3]


def test_nothing_to_forget_among_nothing() -> None:
    assert select_to_forget(records(), Policy(), 5, NOW) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "random"}, "name must be one of"),
        ({"half_life_s": 0.0}, "half_life_s must be"),
        ({"half_life_s": math.nan}, "half_life_s must be"),
        ({"least": -1.0}, "least must be"),
        ({"name": "lru", "least": 0.1}, "does not work with lru"),
    ],
)
def test_bad_policies_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Policy(**values)


def test_bad_records_are_named() -> None:
    good = {
        "ids": np.array([1, 2]),
        "last_used_ns": np.array([1, 2]),
        "use_count": np.array([1, 2]),
        "value": np.array([0.0, 1.0]),
        "marked": np.array([False, True]),
        "map_ids": ["a", "b"],
    }
    for name, value, error, message in (
        ("ids", np.array([1, 1]), ValueError, "unique"),
        ("last_used_ns", np.array([1.0, 2.0]), TypeError, "last_used_ns must be integers"),
        ("use_count", np.array([1, -2]), ValueError, "use_count must not be negative"),
        ("value", np.array([1.0, math.nan]), ValueError, "value must be finite"),
        ("marked", np.array([False]), ValueError, "marked must have shape"),
    ):
        with pytest.raises(error, match=message):
            Records(**{**good, name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="capacity must not be negative"):
        select_to_forget(Records(**good), Policy(), -1, NOW)  # type: ignore[arg-type]
