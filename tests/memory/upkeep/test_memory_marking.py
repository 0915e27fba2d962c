"""What is gone stays as history: marking, undo, and what becomes of later sights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.config import StoreConfig
from memory.errors import UndoError, UnknownMemoryError
from memory.merging import propose_merges
from memory.query import Filter
from memory.questions import Questions
from memory.store import MemoryStore
from memory.types import Memory

SECOND = 10**9


def car(at_s: float, axis: int | None = 0, **values: object) -> Memory:
    vector = None if axis is None else np.eye(4)[axis]
    values = {"position": (0.0, 0.0, 0.0), **values}
    return Memory(time_ns=round(at_s * SECOND), label="Car", embedding=vector, **values)  # type: ignore[arg-type]


@pytest.fixture
def store(location: Path | str) -> Iterator[MemoryStore]:
    with MemoryStore.open(location, dim=4) as opened:
        yield opened


def test_marking_is_logged_explained_and_taken_back(store: MemoryStore) -> None:
    store.add([car(0), car(10, position=(9.0, 0.0, 0.0))])
    before = store.find(Filter())
    done = store.mark([1], "gone", why="the place was empty")
    assert done == store.generation
    assert store.get([1])[0].state == "gone"
    entry = store.log()[-1]
    assert (entry.operation, entry.detail["at_ns"], entry.detail["was"]) == (
        "mark",
        10 * SECOND,
        {"1": "present"},
    )
    reason = store.explain(1).reasons[0]
    assert "gone since 1970-01-01 00:00:10 UTC, present before: the place was empty" in reason
    assert [memory.id for memory in Questions(store).changed_since(0, after=done - 1).gone] == [1]
    assert Questions(store).still_there(1).state == "gone"
    undone = store.undo(done)
    assert store.find(Filter()) == before
    store.undo(undone)
    assert store.get([1])[0].state == "gone"


def test_bad_markings_change_nothing(store: MemoryStore) -> None:
    store.add([car(10)])
    with pytest.raises(UnknownMemoryError, match="7"):
        store.mark([1, 7], "gone")
    with pytest.raises(ValueError, match="was seen on"):
        store.mark([1], "gone", at_ns=5)
    with pytest.raises(ValueError, match="state"):
        store.mark([1], "lost")  # type: ignore[arg-type]
    assert store.mark([]) == store.generation == 1


def test_what_is_gone_stands_for_no_sight(store: MemoryStore) -> None:
    (first,) = store.observe([car(0)])
    assert store.observe([car(1)])[0].like == first.id
    store.mark([1], "gone", at_ns=5 * SECOND)
    (again,) = store.observe([car(10)])
    assert again.id == 2
    assert [memory.count for memory in store.get([1, 2])] == [2, 1]


def test_without_vectors_another_car_is_another(store: MemoryStore) -> None:
    store.add([car(0, None), car(1, None)])
    store.mark([1, 2], "gone", at_ns=50 * SECOND)
    store.add([car(100, None), car(101, None)])
    done = store.consolidate()
    assert [sources for _, sources in done.merged] == [(1, 2), (3, 4)]
    old, new = store.get([result for result, _ in done.merged])
    assert (old.state, old.count, new.state, new.first_seen_ns) == ("gone", 2, "present", 100 * SECOND)
    # Still so in the next round, when what is gone is a merged memory.
    assert store.consolidate().merged == []


def test_one_of_the_same_look_came_back_with_both_visits(store: MemoryStore) -> None:
    store.add([car(0)])
    store.mark([1], "gone", at_ns=50 * SECOND)
    store.add([car(200)])
    ((result, sources),) = store.consolidate().merged
    (memory,) = store.get([result])
    assert (sources, memory.state) == ((1, 2), "present")
    assert [visit.first_ns for visit in memory.visits] == [0, 200 * SECOND]
    assert "it was gone and came back" in store.log()[-1].readable_detail()["reason"]


def test_what_was_seen_before_it_was_gone_is_of_it(store: MemoryStore) -> None:
    store.add([car(0, None), car(10, None)])
    store.mark([1], "gone", at_ns=50 * SECOND)
    ((result, _),) = store.consolidate().merged
    assert store.get([result])[0].state == "gone"


def test_several_leavings_and_comings() -> None:
    """At one place: a car, gone at 10; another, gone at 30; a third. Without vectors three things."""
    rows = [
        car(at, None, id=id, state=state)
        for id, at, state in (
            (1, 0, "gone"), (2, 5, "present"), (3, 20, "gone"), (4, 25, "present"), (5, 40, "present"),
        )
    ]  # fmt: skip
    gone = {1: 10 * SECOND, 3: 30 * SECOND}
    found = propose_merges(rows, gone_ns=gone)
    assert [(one.ids, one.result.state, one.gone_ns) for one in found] == [
        ((1, 2), "gone", 10 * SECOND),
        ((3, 4), "gone", 30 * SECOND),
    ]
    assert [one.ids for one in propose_merges(rows[::-1], gone_ns=gone)] == [(1, 2), (3, 4)]


def old(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Later operations are of another time."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + round(days * 86_400 * SECOND))


def test_trimming_ends_the_undoing_of_old_operations(
    location: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryStore.open(location, dim=4) as store:
        store.add([car(0), car(0, position=(9.0, 0.0, 0.0))])
        store.forget([1])
        marked = store.mark([2], "gone")
        # Of the running session nothing goes.
        assert store.trim(keep_operations=0).operations == 0
        store.undo(store.undo(marked))
    with MemoryStore.open(location) as store:
        assert store.trim(keep_ns=10**15).operations == 0
        old(store, monkeypatch, days=40)
        done = store.trim(keep_ns=30 * 86_400 * SECOND, keep_operations=1)
        assert (done.operations, done.generation) == (4, 4)
        assert done.bytes > 100
        with pytest.raises(UndoError, match="trimmed"):
            store.undo(2)
        store.undo(5)
        # What was marked is still known.
        assert store.states_at(2, [2]) == {2: "present"}
        assert store.trim(keep_operations=0).operations == 1
        with pytest.raises(ValueError, match="keep_ns"):
            store.trim()
        with pytest.raises(ValueError, match="negative"):
            store.trim(keep_operations=-1)
        assert store.check().ok


def test_consolidation_trims_as_the_settings_say(
    location: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StoreConfig(undo_keep_operations=0)
    with MemoryStore.open(location, dim=4, config=config) as store:
        store.add([car(0)])
        store.forget([1])
    with MemoryStore.open(location) as store:
        assert store.consolidate().trimmed.operations == 0
        old(store, monkeypatch, days=31)
        assert store.consolidate().trimmed.operations == 2
    with MemoryStore.open(location, config=StoreConfig(undo_keep_s=None)) as store:
        store.add([car(0)])
    with MemoryStore.open(location) as store:
        assert store.consolidate().trimmed.operations == 0


def test_the_write_ahead_log_is_cut_at_close_beside_a_reader(tmp_path: Path) -> None:
    log = tmp_path / "memory.db-wal"
    with MemoryStore.open(tmp_path, dim=4) as store:
        store.add([car(0)] * 2000)
    with MemoryStore.open(tmp_path) as store:
        reader = MemoryStore.open(tmp_path, readonly=True)
        store.add([car(0)] * 2000)
        assert log.stat().st_size > 100_000
    assert log.stat().st_size == 0
    assert len(reader) == 4000
    # Another writer goes on beside it.
    with MemoryStore.open(tmp_path) as store:
        store.add([car(0)])
        assert len(reader) == 4001
    reader.close()


def test_a_reader_in_the_middle_is_not_waited_for(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=4) as store, MemoryStore.open(tmp_path, readonly=True) as reader:
        store.add([car(0)])
        with reader.database._readers.borrow() as connection:
            connection.execute("SELECT count(*) FROM memory").fetchone()
            store.add([car(0)])
            # Who waits, waits for the time that SQLite is told: it must be none.
            asked: list[str] = []
            with store.database._exclusive_writer() as writer:
                writer.connection.set_trace_callback(asked.append)
            assert store.database.tidy()
            with store.database._exclusive_writer() as writer:
                writer.connection.set_trace_callback(None)
            waits = [text for text in asked if "busy_timeout" in text or "wal_checkpoint" in text]
            assert waits[1] == "PRAGMA busy_timeout = 0"
            assert "wal_checkpoint" in waits[2]
            assert connection.execute("SELECT count(*) FROM memory").fetchone() == (1,)
        assert not store.database.tidy()
