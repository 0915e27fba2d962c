"""Threads that write at the same time share commits, and fail alone."""

from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from memory.errors import UnknownMemoryError
from memory.persistence.log import group_commit
from memory.persistence.log.group_commit import GroupCommit
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory


def test_threads_share_transactions_and_every_row_is_there(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        start = threading.Barrier(8)

        def write(thread: int) -> list[int]:
            start.wait()
            found = []
            for number in range(25):
                label = f"{thread} {number}"
                found += database.add([Memory(time_ns=number, label=label, embedding=np.ones(4))] * 2)
            return found

        with ThreadPoolExecutor(8) as pool:
            given = list(pool.map(write, range(8)))
        assert sorted(id for ids in given for id in ids) == list(range(1, 401))
        for thread, ids in enumerate(given):
            assert ids == sorted(ids)
            expected = [f"{thread} {number}" for number in range(25) for _ in range(2)]
            assert [row.label for row in database.get(ids)] == expected
        assert database.generation == 200
        assert database.check().ok


def test_waiting_operations_are_committed_by_one_leader(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        group = database._writer
        with ThreadPoolExecutor(20) as pool:
            with group.lock:  # Nobody leads until all wait.
                futures = [pool.submit(database.add, [Memory(time_ns=i, label=str(i))]) for i in range(20)]
                while len(group._queue) < 20:
                    pass
                before = group.commits
            ids = [future.result()[0] for future in futures]
        assert group.commits == before + 1
        assert [row.label for row in database.get(ids)] == [str(i) for i in range(20)]


def add_together(database: SqliteDatabase, threads: int, each: int) -> None:
    """Add from threads that begin with one group of all."""
    group = database._writer

    def write(thread: int) -> None:
        for number in range(each):
            database.add([Memory(time_ns=number, label=f"{thread} {number}")])

    with ThreadPoolExecutor(threads) as pool:
        with group.lock:
            futures = [pool.submit(write, thread) for thread in range(threads)]
            while len(group._queue) < threads:
                pass
        for future in futures:
            future.result()


def test_a_leader_waits_for_the_threads_of_the_last_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAIT_SHARE", 1e9)
    monkeypatch.setattr(group_commit, "LONGEST_WAIT_S", 60.0)
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        before = database._writer.commits
        add_together(database, threads=4, each=10)
        assert database._writer.commits == before + 10
        assert database.generation == 40


def test_a_single_thread_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "WAIT_SHARE", 1e9)
    monkeypatch.setattr(group_commit, "LONGEST_WAIT_S", 60.0)
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        waits = []
        monkeypatch.setattr(
            group_commit.threading, "Lock", lambda lock=threading.Lock: waits.append(1) or lock()
        )
        for number in range(5):
            database.add([Memory(time_ns=number)])
        # One lock for each job, and none to wait with.
        assert len(waits) == 5


def test_threads_that_do_not_return_delay_others_only_shortly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAIT_SHARE", 1e9)
    monkeypatch.setattr(group_commit, "LONGEST_WAIT_S", 0.05)
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        add_together(database, threads=3, each=1)
        for number in range(3):
            database.add([Memory(time_ns=number)])
        assert database.generation == 6


def test_an_operation_of_a_group_fails_alone(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        database.add([Memory(time_ns=0)])
        with ThreadPoolExecutor(9) as pool:
            with database._writer.lock:
                good = [pool.submit(database.add, [Memory(time_ns=i)]) for i in range(4)]
                bad = pool.submit(database.remove, [99])
                good += [pool.submit(database.add, [Memory(time_ns=i)]) for i in range(4)]
                while len(database._writer._queue) < 9:
                    pass
            with pytest.raises(UnknownMemoryError):
                bad.result()
            assert sorted(future.result()[0] for future in good) == list(range(2, 10))
        assert database.ids().tolist() == list(range(1, 10))
        assert database.generation == 9


@pytest.fixture
def plain(tmp_path: Path):
    connection = sqlite3.connect(tmp_path / "plain.db", isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE thing (value INTEGER)")
    yield connection
    connection.close()


def insert_one(connection: sqlite3.Connection) -> int:
    return connection.execute("INSERT INTO thing VALUES (1)").rowcount


def interrupted(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO thing VALUES (2)")
    raise KeyboardInterrupt


def test_an_interruption_leaves_the_others_waiting_not_failed(plain: sqlite3.Connection) -> None:
    resets: list[int] = []

    class Noting(GroupCommit[None, None]):
        def after_rollback(self) -> None:
            resets.append(1)

    group = Noting(plain)
    held, both = threading.Event(), threading.Event()

    def hold() -> None:
        with group.lock:
            held.set()
            both.wait()

    def other() -> int:
        while not group._queue:  # The interrupted one leads.
            pass
        result = pool.submit(group.run, insert_one)
        while len(group._queue) < 2:
            pass
        both.set()
        return result.result()

    with ThreadPoolExecutor(3) as pool:
        pool.submit(hold)
        held.wait()
        done = pool.submit(other)
        with pytest.raises(KeyboardInterrupt):
            group.run(interrupted)
        assert done.result() == 1
    assert resets == [1]
    assert group.commits == 1
    assert group.run(lambda connection: 7) == 7
    assert plain.execute("SELECT value FROM thing").fetchall() == [(1,)]


def test_whoever_is_interrupted_while_waiting_is_not_waited_for(plain: sqlite3.Connection) -> None:
    group: GroupCommit[None, None] = GroupCommit(plain)
    started, waited = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        started.set()
        waited.wait()
        return insert_one(connection)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(group.run, slow)
        started.wait()
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            group.run(interrupted)
        third = pool.submit(group.run, insert_one)
        waited.set()
        assert (first.result(), third.result()) == (1, 1)
    assert group.run(lambda connection: 7) == 7
    assert plain.execute("SELECT value FROM thing").fetchall() == [(1,), (1,)]


def test_requests_that_follow_each_other_are_done_together(plain: sqlite3.Connection) -> None:
    seen: list[list[int]] = []

    class Tenfold(GroupCommit[int, int]):
        def run_requests(self, requests: list[int]) -> list[int]:
            seen.append(requests)
            if 3 in requests:
                raise ValueError("not this one")
            return [10 * request for request in requests]

    group = Tenfold(plain)
    with ThreadPoolExecutor(5) as pool:
        with group.lock:
            futures = []
            for request in range(5):
                futures.append(pool.submit(group.run_together, request))
                while len(group._queue) <= request:
                    pass
        assert [future.result() for future in futures if future is not futures[3]] == [0, 10, 20, 40]
        with pytest.raises(ValueError, match="not this one"):
            futures[3].result()
    assert seen == [[0, 1, 2, 3, 4], [0], [1], [2], [3], [4]]
    with group.lock:
        assert group.run_alone(insert_one) == 1


def test_rows_of_many_threads_go_in_together_with_what_they_have(tmp_path: Path) -> None:
    """Covariances, encoders and defaults differ from row to row; every operation keeps its own entry."""
    rows = [
        Memory(time_ns=0, label="plain"),
        Memory(
            time_ns=1,
            position=(1.0, 2.0, 3.0),
            covariance=np.eye(3),
            embedding=np.ones(4),
            map_id="other",
            kind="note",
        ),
        Memory(time_ns=2, embeddings={"clip": np.ones(2)}, reward=2.0, payload={"a": 1}, marked=True),
        Memory(time_ns=3, embedding=[1, 0, 0, 0], embeddings={"clip": np.array([0.0, 1.0])}),
    ]
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        with ThreadPoolExecutor(4) as pool:
            with database._writer.lock:
                futures = []
                for at, row in enumerate(rows):
                    futures.append(pool.submit(database.add, [row], operation=f"op {at}", detail={"at": at}))
                    while len(database._writer._queue) <= at:
                        pass
            ids = [future.result()[0] for future in futures]
        assert ids == [1, 2, 3, 4]
        found = database.get(ids)
        assert found == [dataclasses.replace(row, id=id) for id, row in zip(ids, rows, strict=True)]
        np.testing.assert_array_equal(found[1].covariance, np.eye(3))
        assert [row.covariance is None for row in found] == [True, False, True, True]
        assert database.vectors(ids, "clip").ids.tolist() == [3, 4]
        assert database.vectors(ids).ids.tolist() == [2, 4]
        assert [(e.operation, e.added, e.detail) for e in database.log()] == [
            (f"op {at}", range(at + 1, at + 2), {"at": at}) for at in range(4)
        ]
        database.undo(2)
        assert database.ids().tolist() == [1, 3, 4]
        assert database.check().ok


def test_readers_see_one_moment_while_others_write(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                # Always two of a pair: a reader that saw one of them saw half an operation.
                ids = database.add([Memory(time_ns=0, caption="pair", embedding=np.ones(4))] * 2)
                database.apply(remove=ids[:1], add=[Memory(time_ns=1, caption="pair")], operation="merge")

        def read() -> int:
            odd = 0
            for _ in range(60):
                odd += database.count(Filter(text="pair")) % 2
                rows = database.scan_columns()
                odd += len(rows.ids) % 2
            return odd

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write) for _ in range(2)]
            readers = [pool.submit(read) for _ in range(2)]
            try:
                assert [reader.result() for reader in readers] == [0, 0]
            finally:
                stop.set()
            for writer in writers:
                writer.result()
        assert database.check().ok
