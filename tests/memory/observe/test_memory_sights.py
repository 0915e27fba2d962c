"""Sights that are not kept are counted on the memory that stands for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.config import ReservoirConfig, StoreConfig
from memory.persistence.log import observations
from memory.query import Filter
from memory.questions import Questions
from memory.store import MemoryStore
from memory.types import Memory, Visit

SECOND = 10**9
CONFIG = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=1))


def wall(at_s: float, **values: object) -> Memory:
    values = {"label": "wall", "embedding": np.eye(4)[0], "position": (0.0, 0.0, 0.0), **values}
    return Memory(time_ns=round(at_s * SECOND), **values)  # type: ignore[arg-type]


@pytest.fixture
def store(location: Path | str) -> Iterator[MemoryStore]:
    with MemoryStore.open(location, dim=4, config=CONFIG) as opened:
        yield opened


def test_a_parked_robot_knows_how_often_how_long_and_when_last(store: MemoryStore) -> None:
    (first,) = store.observe([wall(0)])
    before = store.generation
    for at in range(1, 500):
        (kept,) = store.observe([wall(at)])
        assert (kept.id, kept.like, kept.similarity) == (None, first.id, pytest.approx(1.0, abs=1e-3))
    # Nothing was written meanwhile: no sync a sight.
    assert (store.generation, store.get([1])[0].count) == (before, 1)
    store.flush()
    assert store.generation == before + 1
    (memory,) = store.get([1])
    assert (memory.count, memory.last_seen_ns, memory.visits) == (
        500,
        499 * SECOND,
        (Visit(0, 499 * SECOND, 500),),
    )
    assert memory.time_ns == 0
    ask = Questions(store)
    often = ask.how_often("wall")
    assert (often.sightings, often.visits, often.total_s) == (500, 1, 499.0)
    store.observe([wall(100, label="cup", embedding=np.eye(4)[1])])
    assert ask.last_seen("wall").time_ns == 499 * SECOND
    assert "seen 499 more times like this, last at 1970-01-01 00:08:19 UTC" in store.explain(1).reasons
    store.flush()
    assert store.generation == before + 2  # Nothing waited.


def test_of_two_memories_the_one_whose_sights_are_later_was_seen_last(store: MemoryStore) -> None:
    store.observe(
        [wall(0), wall(10, position=(50.0, 0.0, 0.0)), wall(20), wall(5, position=(50.0, 0.0, 0.0))]
    )
    found = Questions(store).last_seen("wall")
    assert (found.memory and found.memory.id, found.time_ns) == (1, 20 * SECOND)
    assert Questions(store).still_there("wall").memory == store.get([1])[0]


def test_waiting_sights_are_written_with_the_next_commit_before_it(store: MemoryStore) -> None:
    store.observe([wall(0)])
    store.observe([wall(1)])
    store.add([Memory(time_ns=0)])
    assert [entry.operation for entry in store.log()] == ["observe", "seen", "add"]
    assert store.get([1])[0].count == 2


def test_waiting_sights_are_written_at_close(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4, config=CONFIG) as store:
        store.observe([wall(0)])
        store.observe([wall(1)])
    with MemoryStore.open(location) as store:
        assert store.get([1])[0].count == 2


def test_a_day_parked_costs_a_commit_in_ten_minutes(store: MemoryStore) -> None:
    store.observe([wall(0, kind="place")])
    for at in range(60, 3600, 10):
        store.observe([wall(at, kind="place")])
    assert store.generation <= 1 + 6
    assert store.get([1])[0].count > 300


def test_sights_of_the_same_batch_are_stored_with_the_memory(store: MemoryStore) -> None:
    kept = store.observe([wall(0), wall(1), wall(2)])
    assert [one.like for one in kept] == [None, 1, 1]
    assert (store.generation, store.get([1])[0].count) == (1, 3)


def test_what_gives_way_passes_its_count_on_and_takes_it_back_with_undo(location: Path | str) -> None:
    config = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=2))
    with MemoryStore.open(location, dim=4, config=config) as store:
        store.observe([wall(0), wall(1, count=4)])
        assert len(store) == 2
        before = store.find(Filter())
        done = store.observe_logged([wall(2, reward=5.0)])
        assert done.displaced == (2,)
        assert [memory.count for memory in store.get([1, 3])] == [5, 1]
        assert "seen 4 more times like this" in " ".join(store.explain(1).reasons)
        assert done.generation is not None
        undone = store.undo(done.generation)
        assert store.find(Filter()) == before
        assert "more time" not in " ".join(store.explain(1).reasons)
        store.undo(undone)
        assert [memory.count for memory in store.get([1, 3])] == [5, 1]
        assert store.check().ok


def test_what_was_seen_later_stays_when_earlier_sights_are_taken_back(store: MemoryStore) -> None:
    store.observe([wall(0)])
    for at in (100, 200, 300):
        store.observe([wall(at)])
        store.flush()
    assert store.get([1])[0].count == 4
    undone = store.undo(3)
    (memory,) = store.get([1])
    assert memory.visits == tuple(Visit(at * SECOND, at * SECOND, 1) for at in (0, 100, 300))
    assert (memory.count, memory.last_seen_ns) == (3, 300 * SECOND)
    store.undo(4)
    assert store.get([1])[0].last_seen_ns == 100 * SECOND
    store.undo(undone)
    assert [visit.first_ns for visit in store.get([1])[0].visits] == [0, 100 * SECOND, 200 * SECOND]


def test_many_visits_are_taken_back_by_subtraction(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "KEPT_VISITS", 1)
    store.observe([wall(0)])
    for at in (100, 200):
        store.observe([wall(at)])
        store.flush()
    before = store.get([1])[0]
    store.undo(store.undo(3))
    assert store.get([1])[0] == before
    store.undo(3 + 2)
    assert store.get([1])[0] == before.__class__(**{**vars(before), "count": 2, "visits": before.visits[:2],
                                                    "last_seen_ns": 100 * SECOND})  # fmt: skip


def test_counting_is_no_change_that_undo_stops_at(store: MemoryStore) -> None:
    store.observe([wall(0)])
    marked = store.mark([1], "unknown")
    store.observe([wall(1)])
    store.flush()
    store.undo(marked)
    (memory,) = store.get([1])
    assert (memory.state, memory.count) == ("present", 2)


def test_an_undone_merge_leaves_later_sights_with_the_latest_source(store: MemoryStore) -> None:
    ids = store.add([wall(0), wall(1)])
    done = store.consolidate()
    (result, _) = done.merged[0]
    store.database.see({result: [Visit(500 * SECOND, 500 * SECOND, 7)]})
    store.undo(done.generations[0])
    assert [memory.count for memory in store.get(ids)] == [1, 8]
    assert store.check().ok


def test_sights_of_what_was_forgotten_are_dropped(store: MemoryStore) -> None:
    store.observe([wall(0)])
    store.database.see({1: [Visit(5, 5, 1)], 99: [Visit(5, 5, 1)]})
    store.forget([1])
    store.database.see({1: [Visit(6, 6, 1)]})
    generation = store.generation
    store.flush()
    assert store.generation == generation


def test_a_failed_batch_counts_nothing(store: MemoryStore) -> None:
    store.observe([wall(0)])
    bad = wall(2, label="cup", payload={"a": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        store.observe([wall(1), bad])
    assert len(store.database.pending) == 0


def test_a_rolled_back_commit_lets_them_wait_again(store: MemoryStore) -> None:
    store.observe([wall(0)])
    store.observe([wall(1)])
    with pytest.raises(Exception, match="99"):
        store.forget([99])
    assert len(store.database.pending) == 1
    store.flush()
    assert store.get([1])[0].count == 2


def test_nothing_is_logged_for_nothing(store: MemoryStore) -> None:
    assert store.add([]) == []
    assert (store.generation, store.log()) == (0, [])


def test_days_of_a_merged_memory_are_those_of_its_visits(store: MemoryStore) -> None:
    day = 86_400
    store.add([wall(0), wall(10), wall(3 * day), wall(9 * day)])
    store.consolidate()
    assert len(store) == 1
    assert Questions(store).how_often("wall").days == 3


KILLED = """
import os, signal, sys
import numpy as np
from memory import Memory, MemoryStore
from memory.config import StoreConfig
from memory.config import ReservoirConfig
config = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=1))
store = MemoryStore.open(sys.argv[1], dim=4, config=config)
def see(at, label="wall", axis=0):
    store.observe([Memory(time_ns=at * 10**9, label=label, embedding=np.eye(4)[axis])])
see(0), see(1), see(2)
store.flush()
see(3)
see(4, "cup", 1)
see(5), see(6)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_at_most_what_waits_is_lost(location: Path | str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(location)], env={**os.environ}, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == -signal.SIGKILL
    with MemoryStore.open(location) as store:
        assert [(memory.label, memory.count) for memory in store.get([1, 2])] == [("wall", 4), ("cup", 1)]
        assert store.check().ok


def test_without_vectors_novelty_is_the_distance_to_what_is_known(store: MemoryStore) -> None:
    def seen(x: float, confidence: float = 1.0) -> float:
        there = Memory(time_ns=0, label="post", position=(x, 0.0, 0.0), confidence=confidence)
        return store.observe([there])[0].importance

    first = seen(0.0)
    here, near, far = seen(0.0), seen(1.0), seen(30.0)
    assert here < near < far
    # Novelty counts half; the class is known to all three.
    assert near - here == pytest.approx(0.25, abs=1e-6)
    assert far - here == pytest.approx(0.5, abs=0.01)
    assert first > here
    # An unsure sight of a known thing matters less than a sure one of a new thing.
    assert seen(0.0, confidence=0.0) < seen(60.0)
