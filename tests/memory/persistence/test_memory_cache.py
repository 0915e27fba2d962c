"""Memories that were read lately are as the last operation left them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import Memory
from memory.errors import UnknownMemoryError
from memory.persistence import cache
from memory.persistence.sqlite import tables
from memory.persistence.sqlite.database import SqliteDatabase


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    """With five memories, which were read."""
    with SqliteDatabase.open(tmp_path / "store", dim=3) as found:
        covariance = np.diag([1.0, 2.0, 3.0])
        found.add(
            [
                Memory(
                    time_ns=number, position=(0.0, 0.0, 0.0), label=f"thing {number}",
                    payload={"parts": [number]}, embedding=np.eye(3, dtype=np.float32)[number % 3],
                    covariance=covariance if number == 2 else None,
                )
                for number in range(5)
            ]
        )  # fmt: skip
        found.get([1, 2, 3, 4, 5], vectors=False)
        yield found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids that are read of the tables."""
    found: list[list[int]] = []
    read = tables.read_images

    def noted(connection: Any, ids: list[int], *, vectors: bool = True) -> Any:
        found.append(list(ids))
        return read(connection, ids, vectors=vectors)

    monkeypatch.setattr("memory.persistence.sqlite.engine.SqliteEngine.read_images", staticmethod(noted))
    return found


def test_what_is_known_is_not_read_again(database: SqliteDatabase, reads: list[list[int]]) -> None:
    with_vectors = database.get([3, 1])
    reads.clear()
    again = database.get([3, 1], vectors=False)
    assert reads == []
    assert again == with_vectors
    assert [memory.embedding for memory in again] == [None, None]
    (covered,) = database.get([3], vectors=False)
    np.testing.assert_array_equal(covered.covariance, np.diag([1.0, 2.0, 3.0]))
    with pytest.raises(UnknownMemoryError, match="99"):
        database.get([1, 99], vectors=False)


def test_nobody_shares_what_can_be_changed(database: SqliteDatabase) -> None:
    for _ in range(2):
        (memory,) = database.get([3], vectors=False)
        assert memory.payload == {"parts": [2]}
        memory.payload["parts"].append("mine")
        memory.payload["more"] = 1  # type: ignore[index]
        assert memory.covariance is not None
        np.testing.assert_array_equal(memory.covariance, np.diag([1.0, 2.0, 3.0]))
        memory.covariance[:] = 7.0
        memory.embeddings["mine"] = np.zeros(3)  # type: ignore[index]
        assert not database.get([3], vectors=False)[0].embeddings


def test_additions_leave_it_and_changes_do_not(database: SqliteDatabase, reads: list[list[int]]) -> None:
    database.add([Memory(time_ns=9)])
    assert [m.time_ns for m in database.get([1, 6], vectors=False)] == [0, 9]
    assert reads == [[6]]
    reads.clear()
    generation = database.mark([2], "gone")
    reads.clear()
    assert [m.state for m in database.get([1, 2], vectors=False)] == ["present", "gone"]
    assert reads == [[2]]
    database.undo(generation)
    assert [m.state for m in database.get([1, 2], vectors=False)] == ["present", "present"]
    database.repose([1], [[5.0, 6.0, 7.0]], [0.5])
    (moved,) = database.get([1], vectors=False)
    assert (moved.position, moved.yaw) == ((5.0, 6.0, 7.0), 0.5)


def test_what_was_removed_and_came_back(database: SqliteDatabase) -> None:
    generation = database.remove([2])
    with pytest.raises(UnknownMemoryError):
        database.get([2], vectors=False)
    database.undo(generation)
    assert database.get([2], vectors=False)[0].label == "thing 1"
    # Both at once, with nobody looking in between.
    database.undo(database.remove([2]))
    assert database.get([2], vectors=False)[0].label == "thing 1"


def test_another_process_is_followed(database: SqliteDatabase) -> None:
    with SqliteDatabase.open(database.folder, readonly=True) as reader:
        assert reader.get([1], vectors=False)[0].state == "present"
        database.mark([1], "gone")
        assert reader.get([1], vectors=False)[0].state == "gone"


def test_an_older_moment_is_read_as_it_was(database: SqliteDatabase) -> None:
    with database._read() as before:
        before.execute("SELECT count(*) FROM log").fetchone()  # The moment is that of the first look.
        database.mark([1], "gone")
        assert database.get([1], vectors=False)[0].state == "gone"
        assert database._cache.read(before, [1], database.generation - 1)[0].state == "present"
        assert database.get([1], vectors=False)[0].state == "gone"


def test_there_are_bounds(
    database: SqliteDatabase, reads: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST", 3)
    database._cache.clear()
    database.get([1, 2, 3], vectors=False)
    database.get([1], vectors=False)  # Now the last that was asked for.
    database.get([4], vectors=False)
    reads.clear()
    database.get([1, 3, 4], vectors=False)
    assert reads == []
    database.get([2], vectors=False)
    assert reads == [[2]]
    (long,) = database.add([Memory(time_ns=1, caption="word " * 1000)])
    database.get([long], vectors=False)
    reads.clear()
    database.get([long], vectors=False)
    assert reads == [[long]]
