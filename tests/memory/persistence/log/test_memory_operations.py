"""Operations of the log: changes, undo and trimming."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory.errors import (
    UndoError,
)
from memory.persistence.log import operations
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

Rows = Callable[..., list[Memory]]


def test_update_changes_every_column_and_is_undone(database: SqliteDatabase, rows_of: Rows) -> None:
    (id,) = database.add(rows_of(1))
    (old,) = database.get([id])
    new = Memory(
        time_ns=1,
        position=(50.0, 60.0, 0.0),
        label="sofa",
        caption="green",
        embeddings={"clip": np.ones(2)},
        id=id,
    )
    generation = database.update([new], operation="correct", detail={"by": "me"})
    assert database.get([id]) == [new]
    assert database.vectors([id]).ids.size == 0
    assert database.ids(Filter(text="green sofa", box=(50, 60, 50, 60))).tolist() == [id]
    assert database.ids(Filter(text=old.caption)).size == 0
    assert database.ids(Filter(circle=(*old.position[:2], 1.0))).size == 0
    assert database.before(generation) == [old]
    assert database.check().ok
    database.undo(generation)
    (back,) = database.get([id])
    assert back == old
    np.testing.assert_array_equal(back.embedding, old.embedding)
    assert database.check().ok


def test_a_merge_is_one_operation(database: SqliteDatabase, rows_of: Rows) -> None:
    ids = database.add(rows_of(4))
    originals = database.get(ids)
    applied = database.apply(
        add=rows_of(1, seed=9), remove=ids[:3], operation="merge", detail={"why": "same"}
    )
    assert applied.ids == [5]
    assert database.ids().tolist() == [4, 5]
    entry = database.log(applied.generation - 1)[0]
    assert (entry.operation, entry.added, entry.detail) == ("merge", range(5, 6), {"why": "same"})
    assert database.before(applied.generation) == originals[:3]
    assert [found.operation for found in database.history(1)] == ["add", "merge"]
    assert [found.operation for found in database.history(5)] == ["merge"]
    assert database.history(77) == []
    redo = database.undo(applied.generation)
    assert database.get(ids) == originals
    assert database.ids().tolist() == [1, 2, 3, 4]
    with pytest.raises(UndoError, match="already undone"):
        database.undo(applied.generation)
    database.undo(redo)
    assert database.ids().tolist() == [4, 5]
    database.undo(applied.generation)
    assert database.get(ids) == originals
    assert database.check().ok


def test_what_was_built_upon_is_not_undone(database: SqliteDatabase, rows_of: Rows) -> None:
    ids = database.add(rows_of(3))
    moved = database.repose(ids, np.ones((3, 3)), np.zeros(3))
    changed = database.update([dataclasses.replace(database.get([2])[0], label="new")])
    with pytest.raises(UndoError, match=rf"operation {changed} \(update\) changed memory 2 after"):
        database.undo(moved)
    with pytest.raises(UndoError, match="Undo 2 first"):
        database.undo(1)
    database.undo(changed)
    database.undo(moved)
    redo = database.undo(database.undo(1))
    assert database.get(ids)[1].position != (1.0, 1.0, 1.0)
    database.undo(1)
    assert database.count() == 0
    with pytest.raises(UndoError, match=r"\(undo\) changed memory 1 after"):
        database.undo(redo)
    with pytest.raises(UndoError, match="there is no operation 99"):
        database.undo(99)


def test_reposing_moves_everything_and_back_to_the_bit(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, rows_of: Rows
) -> None:
    monkeypatch.setattr(operations, "POSE_PART", 7)
    rows = [dataclasses.replace(row, covariance=np.eye(3) * 0.3) for row in rows_of(30)]
    ids = database.add(rows + rows_of(70, seed=3))
    before = database.get(ids)
    random = np.random.default_rng(0)
    for some in (ids[:10], ids):  # Few entries of the R*Tree one by one, and all of it anew.
        positions, yaws = random.uniform(-99, 99, (len(some), 3)), random.uniform(-3, 3, len(some))
        generation = database.repose(some, positions, yaws)
        found = database.get(some)
        assert [row.position for row in found] == [tuple(row) for row in positions.tolist()]
        assert [row.yaw for row in found] == yaws.tolist()
        np.testing.assert_array_equal(found[0].covariance, np.eye(3) * 0.3)
        assert database.ids(Filter(circle=(*positions[0, :2], 0.0))).tolist() == [some[0]]
        assert database.check().ok
        assert database.changes(generation - 1).changed.tolist() == some
        assert "repose" in [entry.operation for entry in database.history(some[0])]
        database.undo(generation)
        assert database.get(ids) == before
        assert database.check().ok
    spread = np.tile(np.diag([1.0, 2.0, 3.0]), (2, 1, 1))
    database.repose(ids[:2], np.zeros((2, 3)), np.zeros(2), covariances=spread)
    np.testing.assert_array_equal(database.get([2])[0].covariance, spread[1])
    database.repose([2, 40], np.ones((2, 3)), np.zeros(2), covariances=2 * spread)
    database.undo(database.generation)
    np.testing.assert_array_equal(database.get([2])[0].covariance, spread[1])
    assert database.get([40])[0].covariance is None
    assert database.check().ok
    assert database.repose([], np.zeros((0, 3)), np.zeros(0), covariances=np.zeros((0, 3, 3))) > 0
    with pytest.raises(ValueError, match="positions must have shape"):
        database.repose(ids[:2], np.zeros((3, 3)), np.zeros(2))
    with pytest.raises(ValueError, match="finite"):
        database.repose(ids[:1], np.full((1, 3), np.nan), np.zeros(1))
    with pytest.raises(ValueError, match="twice"):
        database.repose([1, 1], np.zeros((2, 3)), np.zeros(2))


def test_changes_are_the_difference_of_two_moments(database: SqliteDatabase, rows_of: Rows) -> None:
    states: dict[int, dict[int, str]] = {0: {}}

    def note() -> None:
        states[database.generation] = {row.id: row.label for row in database.get(database.ids())}  # type: ignore[misc]

    database.add(rows_of(5))
    note()
    removal = database.remove([2, 3])
    note()
    database.update([dataclasses.replace(row, label=f"new {row.id}") for row in database.get([1, 5])])
    note()
    database.add(rows_of(2))
    note()
    database.undo(removal)
    note()
    database.remove([1, 6])
    note()
    now = states[database.generation]
    for generation, then in states.items():
        changes = database.changes(generation)
        assert changes.generation == database.generation
        assert changes.added.tolist() == sorted(now.keys() - then.keys())
        assert changes.removed.tolist() == sorted(then.keys() - now.keys())
        really = {id for id in now.keys() & then.keys() if now[id] != then[id]}
        assert really <= set(changes.changed.tolist()) <= now.keys() & then.keys()
    with pytest.raises(ValueError, match="from 0 to"):
        database.changes(99)


def test_changes_tell_apart_what_only_moved(database: SqliteDatabase, rows_of: Rows) -> None:
    ids = database.add(rows_of(6))
    start = database.generation
    new = database.add(rows_of(1))
    database.repose([*ids, *new], np.zeros((7, 3)), np.zeros(7))
    assert database.changes(start).moved.tolist() == ids
    database.update([dataclasses.replace(database.get([2])[0], label="new")])
    database.remove([3])
    changes = database.changes(start)
    assert changes.moved.tolist() == [1, 4, 5, 6]
    assert changes.changed.tolist() == [1, 2, 4, 5, 6]
    assert (changes.added.tolist(), changes.removed.tolist()) == (new, [3])
    assert database.changes(database.generation).moved.size == 0


def test_trimming_the_log_frees_what_was_kept_for_undoing(database: SqliteDatabase, rows_of: Rows) -> None:
    ids = database.add(rows_of(4))
    first, second = database.remove(ids[:1]), database.remove(ids[1:2])
    moved = database.repose(ids[2:], np.zeros((2, 3)), np.zeros(2))
    database.trim_log(first)
    with pytest.raises(UndoError, match="trimmed up to 2"):
        database.undo(first)
    assert database.before(first) == []
    assert database.changes(0).added.tolist() == ids[2:]
    database.undo(second)
    database.trim_log(moved)
    with pytest.raises(UndoError, match="too old"):
        database.undo(moved)
    database.trim_log(1)
    with pytest.raises(UndoError, match="too old"):
        database.undo(moved)


def test_the_log_is_append_only(database: SqliteDatabase, tmp_path: Path, rows_of: Rows) -> None:
    database.add(rows_of(1))
    connection = sqlite3.connect(tmp_path / "store" / "memory.db")
    for sql in ("DELETE FROM log", "UPDATE log SET operation = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(sql)
    connection.close()
