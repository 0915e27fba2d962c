"""The choice between filter first and index first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.index.planner import Costs, plan


@pytest.mark.parametrize(
    ("share", "method"),
    [
        (0.0, "nothing"),
        (0.0001, "subset"),
        (0.001, "subset"),
        (0.01, "subset"),
        (0.5, "index"),
        (1.0, "index"),
    ],
)
def test_every_selectivity_of_a_large_store(share: float, method: str) -> None:
    found = plan(1_000_000, int(share * 1_000_000), 10, filtered=share < 1.0)
    assert found.method == method


def test_the_index_takes_over_once_and_for_good() -> None:
    methods = [plan(200_000, matches, 10).method for matches in range(1, 200_001, 37)]
    first = methods.index("index")
    assert set(methods[:first]) == {"subset"}
    assert set(methods[first:]) == {"index"}


def test_small_stores_are_compared_whole() -> None:
    assert plan(1000, 1000, 10, filtered=False).method == "all"
    assert plan(1000, 20, 10).method == "subset"
    assert plan(0, 0, 10).method == "nothing"


def test_many_neighbours_of_few_matches_are_not_left_to_the_index() -> None:
    assert plan(100_000, 10_000, 5_000).method != "index"


def test_reason_and_rows() -> None:
    found = plan(1_000_000, 500, 10)
    assert found.expected_rows == 500
    assert "500 matching of 1000000" in found.reason
    assert "index" in found.reason
    whole = plan(1_000_000, 1_000_000, 10, filtered=False)
    assert whole.expected_rows == 200


def test_measured_costs_decide() -> None:
    cheap = Costs(index_base=1.0, index_row=0.001)
    assert plan(100_000, 1000, 10, costs=cheap).method == "index"
    dear = Costs(index_base=1e12)
    assert plan(100_000, 90_000, 10, costs=dear).method == "all"


@given(st.integers(1, 10**9), st.integers(1, 1000), st.data())
def test_plans_are_sound(total: int, k: int, data: st.DataObject) -> None:
    matches = data.draw(st.integers(0, total))
    found = plan(total, matches, k)
    assert 0 <= found.expected_rows <= total
    assert (found.method == "nothing") == (matches == 0)
    if found.method == "subset":
        assert found.expected_rows == matches


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="matches must be from 0 to total"):
        plan(10, 11, 1)
    with pytest.raises(ValueError, match="matches must be from 0 to total"):
        plan(-1, 0, 1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        plan(10, 5, 0)
    with pytest.raises(ValueError, match="index_base must be finite and positive"):
        Costs(index_base=0.0)
