"""Accesses are counted by memory, and written without an answer waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memory.errors import StoreError
from memory.persistence.database import Database
from memory.persistence.opening import open_database
from memory.search.accesses import _AT_ONCE, _PORTION, Accesses
from memory.types import Memory


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "store", dim=4)
    opened.add([Memory(time_ns=row) for row in range(600)])
    yield opened
    opened.close()


def counts(database: Database) -> list[int]:
    found: list[int] = database.scan_columns().access_counts.tolist()
    return found


def test_what_waits_is_written_when_asked_for(database: Database) -> None:
    accesses = Accesses(database)
    accesses.note([1, 3, 1])
    accesses.note([3, 1, 1000])
    assert counts(database)[:4] == [0, 0, 0, 0]
    accesses.write()
    assert counts(database)[:4] == [3, 0, 2, 0]
    accesses.write()
    assert counts(database)[:4] == [3, 0, 2, 0]
    assert database.check().ok


def test_many_are_written_in_portions_by_another_thread(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    accesses = Accesses(database)
    real, portions, threads = database.touch, [], set()

    def touch(counts: Mapping[int, int], now_ns: int) -> None:
        portions.append(len(counts))
        threads.add(threading.current_thread())
        real(counts, now_ns)

    monkeypatch.setattr(database, "touch", touch)
    ids = [1 + row % 600 for row in range(_AT_ONCE - 1)]
    accesses.note(ids)
    assert not portions
    accesses.note([7])
    accesses.wait()
    assert portions == [_PORTION, _PORTION, 600 - 2 * _PORTION]
    assert threading.current_thread() not in threads
    assert sum(counts(database)) == _AT_ONCE
    assert counts(database)[6] == ids.count(7) + 1


def test_noting_does_not_wait_for_the_thread_that_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    accesses = Accesses(database)
    real, leave = database.touch, threading.Event()

    def touch(counts: Mapping[int, int], now_ns: int) -> None:
        assert leave.wait(300)
        real(counts, now_ns)

    monkeypatch.setattr(database, "touch", touch)
    accesses.note([1] * _AT_ONCE)
    accesses.note([2] * 2 * _AT_ONCE)
    leave.set()
    accesses.write()
    assert counts(database)[:3] == [_AT_ONCE, 2 * _AT_ONCE, 0]


def test_an_answer_does_not_fail_because_nothing_can_be_written(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    accesses = Accesses(database)

    def touch(*rest: Any) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(database, "touch", touch)
        accesses.note([1] * _AT_ONCE)
        accesses.wait()
        accesses.note([1])
        with pytest.raises(StoreError, match="full"):
            accesses.write()
    accesses.note([2] * _AT_ONCE)
    accesses.write()
    assert counts(database)[:2] == [0, _AT_ONCE]


def test_a_reader_counts_nothing(database: Database, tmp_path: Path) -> None:
    reading = open_database(tmp_path / "store", readonly=True)
    accesses = Accesses(reading)
    accesses.note([1] * 2 * _AT_ONCE)
    accesses.write()
    reading.close()
    assert sum(counts(database)) == 0
