"""Threads that write at the same time share commits, and fail alone."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from memory.errors import UnknownMemoryError
from memory.persistence.filters import Filter
from memory.persistence.group_commit import GroupCommit, Job
from memory.persistence.sqlite import Database
from memory.types import Memory


def test_threads_share_transactions_and_every_row_is_there(tmp_path: Path) -> None:
    with Database.open(tmp_path, dim=4) as database:
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
    with Database.open(tmp_path, dim=4) as database:
        group = database._group
        with ThreadPoolExecutor(20) as pool:
            with group.lock:  # Nobody leads until all wait.
                futures = [pool.submit(database.add, [Memory(time_ns=i, label=str(i))]) for i in range(20)]
                while len(group._queue) < 20:
                    pass
                before = group.commits
            ids = [future.result()[0] for future in futures]
        assert group.commits == before + 1
        assert [row.label for row in database.get(ids)] == [str(i) for i in range(20)]


def test_an_operation_of_a_group_fails_alone(tmp_path: Path) -> None:
    with Database.open(tmp_path, dim=4) as database:
        database.add([Memory(time_ns=0)])
        with ThreadPoolExecutor(9) as pool:
            with database._group.lock:
                good = [pool.submit(database.add, [Memory(time_ns=i)]) for i in range(4)]
                bad = pool.submit(database.remove, [99])
                good += [pool.submit(database.add, [Memory(time_ns=i)]) for i in range(4)]
                while len(database._group._queue) < 9:
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


def test_an_interruption_leaves_the_others_waiting_not_failed(plain: sqlite3.Connection) -> None:
    resets: list[int] = []
    group = GroupCommit(plain, lambda: resets.append(1))
    other = Job(lambda connection: connection.execute("INSERT INTO thing VALUES (1)").rowcount)

    def interrupted(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO thing VALUES (2)")
        raise KeyboardInterrupt

    group._queue.append(other)
    with pytest.raises(KeyboardInterrupt):
        group.run(interrupted)
    assert resets == [1]
    assert not other.done
    assert not plain.in_transaction
    assert group.run(lambda connection: 7) == 7
    assert other.done
    assert plain.execute("SELECT value FROM thing").fetchall() == [(1,)]


def test_readers_see_one_moment_while_others_write(tmp_path: Path) -> None:
    with Database.open(tmp_path, dim=4) as database:
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
