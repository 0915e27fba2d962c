"""The cache of columns follows the store whatever happens to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.search import columns
from memory.search.columns import ColumnCache
from memory.types import Memory


@pytest.fixture(autouse=True, scope="module")
def sorted_early() -> Iterator[None]:
    """Few rows are sorted by x already, as millions are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_SORTED_FROM", 5)
        yield


@pytest.fixture
def database(tmp_path: Path):
    with SqliteDatabase.open(tmp_path / "store", dim=2) as opened:
        yield opened


def rows_of(count: int, seed: int = 0) -> list[Memory]:
    random = np.random.default_rng(seed)
    return [
        Memory(
            time_ns=int(random.integers(20)),
            position=tuple(random.uniform(-5, 5, 3)),
            map_id=str(random.choice(["a", "b"])),
            kind=str(random.choice(["object", "note"])),  # type: ignore[arg-type]
            label=str(random.choice(["cup", "car", ""])),
            confidence=float(random.uniform()),
            marked=bool(random.integers(2)),
            state=str(random.choice(["present", "gone"])),  # type: ignore[arg-type]
            count=int(random.integers(1, 4)),
            velocity=[None, (0.4, 0.0, 0.0), (0.39, 0.0, 5.0)][int(random.integers(3))],
        )
        for _ in range(count)
    ]


def shows(cache: ColumnCache, database: SqliteDatabase) -> None:
    """Exactly what is in the store, by rising id."""
    alive = cache.column("alive")
    ids = cache.column("ids")
    assert (np.diff(ids) > 0).all()
    assert ids[alive].tolist() == database.ids().tolist()
    assert len(cache) == int(alive.sum()) == database.count()
    assert cache.generation == database.generation
    for memory in database.get(ids[alive].tolist()):
        (row,) = cache.rows(np.array([memory.id]))
        assert row >= 0
        for column, value in (
            ("time_ns", memory.time_ns),
            ("confidence", memory.confidence),
            ("marked", memory.marked),
            ("counts", memory.count),
            ("moving", -1 if memory.moving is None else memory.moving),
            ("labels", cache.code("labels", memory.label)),
            ("map_ids", cache.code("map_ids", memory.map_id)),
            ("kinds", cache.code("kinds", memory.kind)),
            ("states", cache.code("states", memory.state)),
        ):
            assert cache.column(column)[row] == value
        assert tuple(cache.column("positions")[row]) == memory.position
    for x in (-4.0, 0.0, 3.5):
        near = Filter(box=(x, -4.0, x + 1.0, 4.0))
        assert ids[cache.matches(near)].tolist() == database.ids(near).tolist()


def test_an_empty_store(database: SqliteDatabase) -> None:
    cache = ColumnCache.of(database)
    assert len(cache) == 0
    assert cache.rows(np.array([1, -1])).tolist() == [-1, -1]
    assert cache.matches(Filter()).tolist() == []
    assert cache.code("labels", "cup") == -1


def test_it_follows_everything(database: SqliteDatabase) -> None:
    cache = ColumnCache.of(database)
    database.add(rows_of(30))
    added, _, _ = cache.follow(database)
    assert len(added) == 30
    shows(cache, database)
    database.remove([3, 4, 30])
    database.update([dataclasses.replace(rows_of(1, 9)[0], id=7, label="new label")])
    database.repose([8, 9], np.ones((2, 3)), np.zeros(2))
    _, removed, changed = cache.follow(database)
    assert removed.tolist() == [3, 4, 30]
    assert changed.tolist() == [7, 8, 9]
    shows(cache, database)
    assert cache.names("labels")[cache.code("labels", "new label")] == "new label"
    # More than there was room for at first.
    database.add(rows_of(1500, 2))
    cache.follow(database)
    shows(cache, database)


def test_undone_removals_come_back_to_their_place(database: SqliteDatabase) -> None:
    database.add(rows_of(10))
    first, second = database.remove([2, 5]), database.remove([9, 10])
    database.add(rows_of(2, 1))
    # Made when these were gone, so that it has no rows for them.
    cache = ColumnCache.of(database)
    shows(cache, database)
    database.remove([12])
    database.undo(first)
    database.add(rows_of(1, 3))
    cache.follow(database)
    shows(cache, database)
    database.undo(second)
    cache.follow(database)
    shows(cache, database)
    assert cache.follow(database)[0].tolist() == []


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_changes_are_followed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    with SqliteDatabase.open(tmp_path_factory.mktemp("columns"), dim=2) as database:
        database.add(rows_of(4))
        cache = ColumnCache.of(database)
        removals: list[int] = []
        for step in range(data.draw(st.integers(1, 8))):
            what = data.draw(st.sampled_from(["add", "remove", "undo", "update", "fresh", "follow"]))
            ids = database.ids().tolist()
            if what == "add":
                database.add(rows_of(data.draw(st.integers(1, 3)), step))
            elif what == "remove" and ids:
                removals.append(
                    database.remove(data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=3)))
                )
            elif what == "undo" and removals:
                database.undo(removals.pop(data.draw(st.integers(0, len(removals) - 1))))
            elif what == "update" and ids:
                database.update(
                    [dataclasses.replace(rows_of(1, step + 50)[0], id=data.draw(st.sampled_from(ids)))]
                )
            elif what == "fresh":
                cache = ColumnCache.of(database)
            else:
                cache.follow(database)
        cache.follow(database)
        shows(cache, database)


FILTERS = [
    Filter(),
    Filter(between_ns=(3, 9)),
    Filter(labels=["cup", ""]),
    Filter(labels=[]),
    Filter(labels=["unheard of"]),
    Filter(kinds=["note"], states=["gone"]),
    Filter(map_id="a", marked=True),
    Filter(marked=False, min_confidence=0.5),
    Filter(moving=True),
    Filter(moving=False, kinds=["note"]),
    Filter(box=(-2.0, -1.0, 3.0, 4.0)),
    Filter(circle=(1.0, 1.0, 2.5)),
    Filter(circle=(1.0, 1.0, 0.0)),
    Filter(polygon=[(-4.0, -4.0), (4.0, -4.0), (0.0, 4.0)], map_id="b"),
    Filter(box=(-2.0, -2.0, 2.0, 2.0), circle=(2.0, 2.0, 2.0), polygon=[(0, 0), (3, 0), (3, 3)]),
    Filter(box=(0.0, 0.0, 1.0, 1.0), circle=(9.0, 9.0, 1.0)),
]


@pytest.mark.parametrize("filter", FILTERS, ids=range(len(FILTERS)))
def test_filters_agree_with_the_database(database: SqliteDatabase, filter: Filter) -> None:
    database.add(rows_of(300))
    database.remove(range(1, 300, 7))
    cache = ColumnCache.of(database)
    database.remove([2])
    cache.follow(database)
    kept = cache.matches(filter)
    assert cache.column("ids")[kept].tolist() == database.ids(filter).tolist()
    some = np.array([200, 3, 3, 100])
    np.testing.assert_array_equal(cache.matches(filter, some), kept[some])


def test_rows_of_ids_that_are_not_there(database: SqliteDatabase) -> None:
    database.add(rows_of(5))
    database.remove([3])
    cache = ColumnCache.of(database)
    assert cache.rows(np.array([5, 3, 99, -1, 1, 0])).tolist() == [3, -1, -1, -1, 0, -1]
