"""The index over places against a loop, however blocks were made, and blocks against the poses."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.persistence.ids import distinct
from memory.persistence.log import operations
from memory.persistence.rows import prepare
from memory.persistence.sqlite import places
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and runs so small that a few hundred memories have many."""
    for name, value in (("TAIL", 20), ("BLOCK", 4), ("RUN", 64), ("SMALL_RUNS", 3)):
        monkeypatch.setattr(places, name, value)


@pytest.fixture
def database(tmp_path: Path, small: None) -> Iterator[SqliteDatabase]:
    with SqliteDatabase.open(tmp_path, dim=2) as opened:
        yield opened


def rows_at(points: np.ndarray) -> list[Memory]:
    return [Memory(time_ns=i, position=(x, y, 0.0)) for i, (x, y) in enumerate(points.tolist())]


def count_rows(database: SqliteDatabase, sql: str) -> int:
    with database._read() as connection:
        return int(connection.execute(sql).fetchone()[0])


def compare(database: SqliteDatabase, random: np.random.Generator) -> None:
    """Boxes of all sizes, by blocks and by looking through everything."""
    rows = database.get(database.ids(), vectors=False)
    points = np.array([row.position[:2] for row in rows]).reshape(-1, 2)
    ids = np.array([row.id for row in rows])
    for size in (0.0, 0.5, 5.0, 50.0, 200.0):
        x, y = random.uniform(-60, 60, 2)
        if len(points):
            x, y = points[random.integers(len(points))] - [0.0, size / 3]
        inside = (points >= [x, y]).all(axis=1) & (points <= [x + size, y + size]).all(axis=1)
        for broad in (1e-9, 1e9):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(places, "BROAD", broad)
                query = Filter(box=(x, y, x + size, y + size))
                assert database.ids(query).tolist() == ids[inside].tolist()
                assert database.count(query) == inside.sum()


def test_places_are_found_while_memories_come_move_and_go(database: SqliteDatabase) -> None:
    random = np.random.default_rng(0)
    compare(database, random)
    ids: list[int] = []
    removals: list[int] = []
    for step in range(60):
        action = random.integers(6) if ids else 0
        some = (
            sorted(random.choice(ids, min(len(ids), int(random.integers(1, 40))), replace=False).tolist())
            if ids
            else []
        )
        if action <= 1:
            count = int(random.integers(1, 60))
            ids += database.add(rows_at(random.normal(0, 20, (count, 2))))
        elif action == 2:
            database.repose(some, random.normal(0, 20, (len(some), 3)), np.zeros(len(some)))
        elif action == 3:
            moved = [dataclasses.replace(row, position=(1.0, 2.0, 3.0)) for row in database.get(some[:3])]
            database.update(moved)
        elif action == 4:
            removals.append(database.remove(some[:10]))
        elif removals:
            database.undo(removals.pop())
        ids = database.ids().tolist()
        if step % 6 == 5:
            compare(database, random)
    report = database.check()
    assert report.ok, str(report)
    assert count_rows(database, "SELECT count(*) FROM place") > 50
    assert count_rows(database, "SELECT count(*) FROM run WHERE large") > 1
    assert count_rows(database, "SELECT count(*) FROM run WHERE NOT large") < 3


def test_what_was_removed_leaves_the_blocks_in_time(database: SqliteDatabase) -> None:
    random = np.random.default_rng(1)
    for _ in range(40):
        ids = database.add(rows_at(random.normal(0, 20, (25, 2))))
        database.remove(ids[1:])
    assert database.count() == 40
    entries = count_rows(database, "SELECT sum(length(ids)) / 8 FROM block")
    assert entries < 200, f"{entries} entries for 40 memories"
    assert database.check().ok


def test_moving_again_and_again_does_not_fill_the_disk(database: SqliteDatabase) -> None:
    random = np.random.default_rng(2)
    ids = database.add(rows_at(random.normal(0, 20, (400, 2))))
    for _ in range(30):
        some = random.choice(ids, 90, replace=False)  # Less than would make everything anew.
        database.repose(some, random.normal(0, 20, (90, 3)), np.zeros(90))
    assert count_rows(database, "SELECT sum(length(ids)) / 8 FROM block") < 5 * 400
    compare(database, random)
    assert database.check().ok


def test_a_move_of_many_is_undone_with_its_blocks(database: SqliteDatabase) -> None:
    random = np.random.default_rng(3)
    ids = database.add(rows_at(random.normal(0, 20, (300, 2))))
    for some in (ids[:5], ids[:50], ids[:200]):
        compare(database, random)
        generation = database.repose(some, random.normal(500, 5, (len(some), 3)), np.zeros(len(some)))
        assert database.changes(generation - 1).moved.tolist() == some
        assert database.ids(Filter(box=(300, 300, 700, 700))).tolist() == some
        database.undo(generation)
        assert not database.count(Filter(box=(300, 300, 700, 700)))
    compare(database, random)
    assert database.check().ok


def test_another_process_and_the_next_start_see_the_same(tmp_path: Path, small: None) -> None:
    random = np.random.default_rng(4)
    with SqliteDatabase.open(tmp_path, dim=2) as database:
        for _ in range(7):
            database.add(rows_at(random.normal(0, 20, (15, 2))))
            with SqliteDatabase.open(tmp_path, readonly=True) as reader:
                compare(reader, random)
    with SqliteDatabase.open(tmp_path) as database:
        database.add(rows_at(random.normal(0, 20, (30, 2))))
        compare(database, random)
        np.testing.assert_array_equal(
            database.poses([3, 10**9])[:, 0], [database.get([3])[0].position[0], np.nan]
        )


def test_a_failed_operation_leaves_the_blocks_as_they_were(database: SqliteDatabase) -> None:
    random = np.random.default_rng(5)
    database.add(rows_at(random.normal(0, 20, (30, 2))))
    placed = database._counters.placed

    def fail(connection: sqlite3.Connection) -> None:
        rows = prepare(rows_at(random.normal(0, 20, (40, 2))), database._counters.slots)
        operations.add_all(connection, database._counters, [operations.Addition(rows, "add", {})])
        assert database._counters.placed == 70
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        database._write(fail)
    assert database._counters.placed == placed == 30
    database.add(rows_at(random.normal(0, 20, (5, 2))))
    compare(database, random)
    assert database.check().ok


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 5000])
def test_tiles_are_small_rectangles(count: int) -> None:
    points = np.random.default_rng(count).uniform(0, 1, (count, 2))
    order = places.tiles(points)
    assert sorted(order.tolist()) == list(range(count))
    if count == 5000:
        blocks = [points[order[at : at + places.BLOCK]] for at in range(0, count, places.BLOCK)]
        area = sum(float(np.prod(np.ptp(block, axis=0))) for block in blocks)
        assert area < 1.3  # They hardly overlap: together about the square that they fill.


def test_distinct_is_unique() -> None:
    for ids in ([], [3], [3, 3], [5, 1, 5, 2, 1]):
        array = np.array(ids, dtype=np.int64)
        np.testing.assert_array_equal(distinct(array), np.unique(array))
