"""Visits on the disk: written, read, undone, checked, copied; and a store from before there were any."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from memory.errors import CorruptStoreError, StoreVersionError
from memory.merging import fuse
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.migrations import MIGRATIONS
from memory.query import Filter
from memory.questions import Questions
from memory.store import MemoryStore
from memory.types import Memory, Visit

S = 10**9
VISITS = (Visit(1, 5, 3), Visit(100, 100, 1))
MERGED = Memory(time_ns=100, count=4, first_seen_ns=1, last_seen_ns=100, visits=VISITS)


def raw(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "memory.db", isolation_level=None)


def test_written_changed_removed_and_undone(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        single, id = database.add([Memory(time_ns=7), MERGED])
        assert [memory.visits for memory in database.get([single, id])] == [(), VISITS]
        more = (*VISITS, Visit(300, 400, 2))
        states = [VISITS]
        for visits in (more, (), more):
            database.update([dataclasses.replace(MERGED, id=id, visits=visits)])
            states.append(visits)
            assert database.get([id])[0].visits == visits
        removed = database.remove([id])
        assert [memory.visits for memory in database.before(removed)] == [more]
        for visits in reversed(states):
            database.undo(
                next(
                    e
                    for e in reversed(database.log())
                    if e.undoes is None and not any(o.undoes == e.generation for o in database.log())
                ).generation
            )
            assert database.get([id])[0].visits == visits
        assert database.check().ok
    with SqliteDatabase.open(tmp_path, readonly=True) as database:
        assert database.get([id])[0].visits == VISITS
        assert database.ids_seen(Filter(between_ns=(50, 100)))[0].tolist() == [id]


def test_one_sight_takes_no_row_and_no_page(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        (id,) = database.add([Memory(time_ns=i) for i in range(50)])[-1:]
        database.update([Memory(time_ns=9, id=id)])
        database.undo(database.remove([1, 2]))
        database.apply(add=[Memory(time_ns=5)], remove=[3], operation="merge")
    connection = raw(tmp_path)
    try:
        assert connection.execute("SELECT count(*) FROM visited").fetchone() == (0,)
    finally:
        connection.close()


def test_threads_that_share_a_commit_keep_each_its_visits(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        wanted = {}
        barrier = threading.Barrier(8)

        def add(number: int) -> None:
            visits = (Visit(number, number, 2),)
            barrier.wait()
            for row in (Memory(time_ns=number), Memory(time_ns=number, count=2, visits=visits)):
                (id,) = database.add([row])
                wanted[id] = row.visits

        threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {row.id: row.visits for row in database.get(database.ids())} == wanted
        assert len(wanted) == 16


def test_the_bytes(tmp_path: Path) -> None:
    """Read with nothing but the page about the format."""
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        (id,) = database.add([MERGED])
    connection = raw(tmp_path)
    try:
        (row,) = connection.execute("SELECT id, first_ns, last_ns, visits FROM visited").fetchall()
    finally:
        connection.close()
    assert row[:3] == (id, 1, 100)
    assert np.frombuffer(row[3], "<i8").reshape(-1, 3).tolist() == [[1, 5, 3], [100, 100, 1]]


@pytest.mark.parametrize(
    ("sql", "said", "readable"),
    [
        ("UPDATE visited SET id = 99", "visited: 99 has no memory", True),
        ("UPDATE visited SET first_ns = 2", "do not match the times", True),
        ("UPDATE visited SET visits = x'00'", "memory 1 has 1 bytes of visits", False),
        ("UPDATE visited SET visits = zeroblob(48)", "memory 1 has damaged visits", False),
    ],
)
def test_damaged_visits_are_found_and_a_repair_says_that_they_are_lost(
    tmp_path: Path, sql: str, said: str, readable: bool
) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        database.add([MERGED])
    connection = raw(tmp_path)
    connection.execute(sql)
    connection.close()
    with SqliteDatabase.open(tmp_path) as database:
        problems = database.check().problems
        assert said in str(problems)
        assert "is not what was stored" in str(problems)
        if not readable:
            with pytest.raises(CorruptStoreError, match="visits"):
                database.get([1])
        database.ids_seen(Filter(between_ns=(0, 10)))
        done = database.check(repair=True)
        assert done.ok, str(done)
        assert done.lost == ("visits of memory 1",)
        assert database.get([1])[0].visits == ()
        assert database.get([1])[0].count == MERGED.count


def test_a_store_of_version_1_is_migrated_and_works(old_store: Path) -> None:
    folder = old_store
    connection = raw(folder)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
    with pytest.raises(StoreVersionError, match="for writing"):
        SqliteDatabase.open(folder, readonly=True)
    with MemoryStore.open(folder) as store:
        wall, cup = store.get([4, 5])
        assert (wall.label, wall.marked, cup.label, cup.count, cup.visits) == ("wall", True, "cup", 3, ())
        assert cup.covariance is not None
        assert store.check().ok
        # What is known without visits: the first and the last sight.
        answer = Questions(store).how_often("cup")
        assert (answer.sightings, answer.visits, answer.total_s) == (3, 2, 0.0)
        assert Questions(store).between(5000 * S, 5000 * S).total == 1
        # The log of version 1 still gives back what it holds.
        store.undo(5)
        store.undo(3)
        assert [memory.visits for memory in store.find(Filter(labels=["cup"]))] == [(), (), ()]
        assert store.get([6])[0].label == "mug"
        ((id, _),) = store.consolidate().merged
        assert store.get([id])[0].visits == ((10 * S, 40 * S, 2),), "the third stood elsewhere"
        found = Questions(store).how_often("cup")
        assert (found.sightings, found.visits, found.total_s) == (3, 2, 30.0)
        assert Questions(store).between(20 * S, 30 * S).total == 1
    with MemoryStore.open(folder, readonly=True) as store:
        assert store.check().ok
        assert len(store.get([id])[0].visits) == 1
    connection = raw(folder)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()


def test_an_old_merged_memory_takes_part_in_a_later_merge(old_store: Path) -> None:
    with MemoryStore.open(old_store) as store:
        (cup,) = store.get([5])
        again = dataclasses.replace(
            cup, id=None, time_ns=9000 * S, count=1, first_seen_ns=None, last_seen_ns=None
        )
        merged = fuse([cup, again])
        assert merged.visits == ((10 * S, 10 * S, 1), (5000 * S, 5000 * S, 2), (9000 * S, 9000 * S, 1))
        assert merged.count == 4
