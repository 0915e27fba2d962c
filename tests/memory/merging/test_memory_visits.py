"""Visits through merging: what single sights say is what the merged memory says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.merging import fuse
from memory.merging.visits import VISIT_GAP_NS, VISIT_GAP_S, join_visits, known_visits
from memory.questions.visits import visits_of
from memory.types import MOST_VISITS, Memory, Visit

S = 10**9
DAY_S = 86_400
START = 20_000 * DAY_S * S
#: Bursts of sights over days: when each begins, and the pauses within, some just at the gap.
bursts = st.lists(
    st.tuples(
        st.integers(0, 5 * DAY_S),
        st.lists(st.sampled_from([0.0, 0.1, 7.0, 59.0, 60.0, 60.000000001, 61.0, 3600.0]), max_size=12),
    ),
    min_size=1,
    max_size=8,
)


def sights(found: list[tuple[int, list[float]]]) -> list[Memory]:
    """A memory a sight, in the order of the bursts."""
    times = [
        START + begin * S + round(pause * S)
        for begin, pauses in found
        for pause in np.cumsum([0.0, *pauses]).tolist()
    ]
    return [Memory(time_ns=time, id=id) for id, time in enumerate(times, start=1)]


def merged_at_random(memories: list[Memory], rng: np.random.Generator) -> list[Memory]:
    """Some of them merged with others, of which some are merged already, in several rounds."""
    left = list(memories)
    for _ in range(int(rng.integers(1, 12))):
        order = rng.permutation(len(left))
        size = int(rng.integers(1, len(left) + 1))
        some = [left[row] for row in order[:size]]
        left = [fuse(some), *(left[row] for row in order[size:])]
    return left


def runs(times: list[int], gap_ns: int) -> list[tuple[int, int, int]]:
    """First, last and number of sights of each visit, by the definition."""
    ordered = sorted(times)
    ends = [i for i, (one, other) in enumerate(pairwise(ordered)) if other - one > gap_ns]
    starts = [0, *(end + 1 for end in ends)]
    return [
        (ordered[first], ordered[last], last - first + 1)
        for first, last in zip(starts, [*ends, len(ordered) - 1], strict=True)
    ]


@given(bursts, st.integers(0, 2**32 - 1), st.sampled_from([60.0, 60.5, 300.0, 3600.0, 1e6]))
def test_merging_in_any_order_and_rounds_changes_no_answer(
    found: list[tuple[int, list[float]]], seed: int, gap_s: float
) -> None:
    single = sights(found)
    merged = merged_at_random(single, np.random.default_rng(seed))
    before, after = visits_of(single, gap_s), visits_of(merged, gap_s)
    assert before == after
    assert before.spans == [row[:2] for row in runs([m.time_ns for m in single], round(gap_s * S))]
    assert after.sightings == len(single) == sum(memory.count for memory in merged)
    whole = fuse(merged)
    assert list(whole.visits) == ([] if len(single) == 1 else runs([m.time_ns for m in single], VISIT_GAP_NS))
    for memory in merged:
        if memory.visits:
            assert (memory.visits[0].first_ns, memory.visits[-1].last_ns) == (
                memory.first_seen_ns,
                memory.last_seen_ns,
            )


@given(bursts, st.integers(0, 2**32 - 1), st.integers(0, 5 * DAY_S), st.integers(0, DAY_S))
def test_a_time_that_ends_within_pauses_is_answered_exactly(
    found: list[tuple[int, list[float]]], seed: int, begin_s: int, length_s: int
) -> None:
    single = sights(found)
    merged = merged_at_random(single, np.random.default_rng(seed))
    # Moved out of visits, in the middle of which nobody knows the single sights any more.
    window = [START + begin_s * S, START + (begin_s + length_s) * S]
    for first, last, _ in runs([memory.time_ns for memory in single], VISIT_GAP_NS):
        if first < window[0] <= last:
            window[0] = first
        if first <= window[1] < last:
            window[1] = last
    between = (window[0], max(window))
    assert visits_of(single, VISIT_GAP_S, between) == visits_of(merged, VISIT_GAP_S, between)


def test_one_sight_has_no_visits_and_one_memory_keeps_its_own() -> None:
    assert fuse([Memory(time_ns=5)]).visits == ()
    kept = Memory(time_ns=5 * S, count=3, visits=((0, S, 2), (5 * S, 5 * S, 1)))
    assert fuse([kept]).visits == kept.visits


def test_what_was_merged_before_visits_were_kept() -> None:
    dense = Memory(time_ns=100 * S, count=11, first_seen_ns=0, last_seen_ns=100 * S)
    assert known_visits(dense) == [Visit(0, 100 * S, 11)]
    assert known_visits(dense, gap_ns=9 * S) == [Visit(0, 0, 1), Visit(100 * S, 100 * S, 10)]
    sparse = Memory(time_ns=5000 * S, count=7, first_seen_ns=0, last_seen_ns=9000 * S)
    assert known_visits(sparse) == [(0, 0, 1), (5000 * S, 5000 * S, 5), (9000 * S, 9000 * S, 1)]
    assert fuse([dense, sparse]).visits == (
        (0, 100 * S, 12),
        (5000 * S, 5000 * S, 5),
        (9000 * S, 9000 * S, 1),
    )
    assert known_visits(Memory(time_ns=3, count=4)) == [(3, 3, 4)]


def test_sights_after_the_last_visit_count_too() -> None:
    """Somebody who notes a further sight by hand need not know of visits."""
    noted = Memory(
        time_ns=900 * S,
        count=6,
        first_seen_ns=0,
        last_seen_ns=900 * S,
        visits=((0, 9 * S, 4), (50 * S,) * 2 + (1,)),
    )
    assert known_visits(noted) == [(0, 9 * S, 4), (50 * S, 50 * S, 1), (900 * S, 900 * S, 1)]


def test_of_too_many_visits_the_closest_become_one() -> None:
    count = MOST_VISITS + 3
    starts = np.cumsum([0, *(1000 + (i * 7919) % count for i in range(count - 1))]).tolist()
    visits = [Visit(start * S, start * S, 1) for start in starts]
    pauses = [after - before for before, after in pairwise(starts)]
    joined = join_visits(visits)
    assert len(joined) == MOST_VISITS
    assert sum(visit.sights for visit in joined) == count
    shortest = sorted(range(count - 1), key=lambda at: (pauses[at], at))[:3]
    left = {start for at, start in enumerate(starts) if at - 1 not in shortest}
    assert [visit.first_ns // S for visit in joined] == sorted(left)
    assert len(join_visits(visits, most=None)) == count
    memories = [Memory(time_ns=visit.first_ns) for visit in visits]
    assert fuse([fuse(memories[:300]), *memories[300:]]).visits == joined


def test_times_at_the_ends_of_64_bits() -> None:
    ends = [Memory(time_ns=np.int64(-(2**63))), Memory(time_ns=2**63 - 1)]
    assert fuse(ends).visits == ((-(2**63), -(2**63), 1), (2**63 - 1, 2**63 - 1, 1))
    many = [Visit(time, time, 1) for time in (-(2**63), 0, 2**63 - 1)]
    assert join_visits(many, most=2) == ((-(2**63), -(2**63), 1), (0, 2**63 - 1, 2))


@pytest.mark.parametrize("gap_ns", [0, 5])
def test_overlapping_visits_become_one_whatever_the_gap(gap_ns: int) -> None:
    visits = [Visit(10, 90, 3), Visit(20, 30, 2), Visit(90, 95, 1), Visit(101, 101, 1)]
    assert join_visits(visits, gap_ns=gap_ns) == ((10, 95, 6), (101, 101, 1))
    assert join_visits([], gap_ns=gap_ns) == ()
