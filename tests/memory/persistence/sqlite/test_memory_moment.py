"""Reads of one moment: a thread's short reads share a transaction, and nothing else does."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query
from memory.errors import CorruptStoreError, UnknownMemoryError
from memory.persistence.sqlite.connection import SqliteConnection, SqliteReaders
from memory.persistence.sqlite.database import SqliteDatabase


def test_reads_of_one_moment_see_it_and_later_ones_what_followed(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=3) as database:
        (first,) = database.add([Memory(time_ns=1, label="Mug")])
        other: list[int] = []
        with database.one_moment():
            assert database.generation == 1
            (second,) = database.add([Memory(time_ns=2, label="Door")])
            thread = threading.Thread(target=lambda: other.append(database.generation))
            thread.start()
            thread.join()
            assert database.generation == 1
            with pytest.raises(UnknownMemoryError):
                database.get([first, second])
        assert other == [2]
        assert database.generation == 2
        assert [memory.label for memory in database.get([first, second])] == ["Mug", "Door"]


def test_an_error_in_one_moment_is_that_of_the_caller_and_ends_it(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=3) as database:
        with pytest.raises(KeyError), database.one_moment():
            raise KeyError("of the caller, so the store is not damaged")
        database.add([Memory(time_ns=1)])
        assert database.generation == 1
        with pytest.raises(CorruptStoreError), database.one_moment(), database._read():
            raise KeyError("of a row that was read")


def test_a_vector_searched_at_once_begins_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[SqliteReaders] = []
    take = SqliteReaders.take

    def counted(readers: SqliteReaders) -> SqliteConnection:
        taken.append(readers)
        return take(readers)

    monkeypatch.setattr(SqliteReaders, "take", counted)
    with MemoryStore.open(tmp_path, dim=3) as store:
        store.add([Memory(time_ns=at, embedding=np.eye(3, dtype=np.float32)[at % 3]) for at in range(9)])
        wanted = Query(embedding=np.eye(3, dtype=np.float32)[1], k=2)
        expected = [hit.memory.id for hit in store.query(wanted)]
        store.add([Memory(time_ns=20, embedding=np.eye(3, dtype=np.float32)[2])])
        taken.clear()
        with store.at_once() as now:
            assert now
            assert [hit.memory.id for hit in store.query(wanted, vectors=False)] == expected
        assert len(taken) == 1
