"""The database against plain Python: what goes in comes out, and filters agree with a loop."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from memory.errors import (
    DimensionError,
    NotAStoreError,
    StoreClosedError,
    StoreReadOnlyError,
    UndoError,
    UnknownMemoryError,
)
from memory.persistence.log import operations
from memory.persistence.sqlite import places, poses, search, upkeep
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

DIM = 8


def rows_of(count: int, seed: int = 0) -> list[Memory]:
    """Different in every column that filters look at."""
    random = np.random.default_rng(seed)
    words = ["red", "chair", "window", "Café", "door"]
    return [
        Memory(
            time_ns=int(random.integers(0, 1000)),
            position=tuple(random.uniform(-10, 10, 3)),
            yaw=float(random.uniform(-3, 3)),
            map_id=["home", "work"][int(random.integers(2))],
            kind=["object", "place", "event", "note"][int(random.integers(4))],  # type: ignore[arg-type]
            label=["cup", "car", "cat"][int(random.integers(3))],
            caption=" ".join(random.choice(words, 3)),
            confidence=float(random.uniform(0, 1)),
            embedding=random.standard_normal(DIM).astype(np.float32),
            marked=bool(random.integers(2)),
            state=["present", "gone"][int(random.integers(2))],  # type: ignore[arg-type]
        )
        for _ in range(count)
    ]


@pytest.fixture
def database(tmp_path: Path):
    with SqliteDatabase.open(tmp_path / "store", dim=DIM) as opened:
        yield opened


def test_a_memory_comes_back_as_it_was(tmp_path: Path) -> None:
    full = Memory(
        time_ns=-(2**63),
        position=(1e-30, -2.5, 1e200),
        yaw=-3.1,
        covariance=np.array([[2.0, 0.1, 0], [0.1, 1, 0], [0, 0, 0.5]]),
        map_id="Küche 1",
        kind="event",
        label="cup",
        caption="a cup ☕ on\nthe table",
        embedding=np.arange(1, DIM + 1, dtype=np.float32) * 1e30,
        embeddings={"clip": np.array([3.0, 4.0], dtype=np.float32)},
        confidence=0.25,
        reward=-1.5,
        payload={"a": [1, None, {"b": "é"}], "c": True},
        evidence="bag/0001.mcap",
        provenance="detector",
        marked=True,
        count=7,
        first_seen_ns=5,
        last_seen_ns=2**63 - 1,
        state="unknown",
        importance=0.125,
    )
    plain = Memory(time_ns=np.int64(3))  # type: ignore[arg-type]
    with SqliteDatabase.open(tmp_path, dim=DIM) as database:
        ids = database.add([full, plain])
    with SqliteDatabase.open(tmp_path) as database:
        found, bare = database.get(ids)
        assert database.slots() == {"default": DIM, "clip": 2}
    assert found == dataclasses.replace(full, id=ids[0])
    assert bare == dataclasses.replace(plain, id=ids[1])
    assert found.covariance is not None
    np.testing.assert_array_equal(found.covariance, full.covariance)
    expected = np.arange(1, DIM + 1) / np.linalg.norm(np.arange(1, DIM + 1))
    np.testing.assert_array_equal(found.embedding, expected.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(found.embeddings["clip"], [0.6, 0.8], atol=1e-3)
    assert bare.embedding is None
    assert not bare.embeddings
    assert bare.covariance is None


def test_stored_vectors_keep_their_bits_when_written_again(database: SqliteDatabase) -> None:
    ids = database.add(rows_of(200))
    first = database.vectors(ids).halves
    database.update(database.get(ids))
    np.testing.assert_array_equal(database.vectors(ids).halves.view(np.uint16), first.view(np.uint16))


def test_ids_rise_and_are_never_used_again(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=DIM) as database:
        assert database.add(rows_of(3)) == [1, 2, 3]
        database.remove([2, 3])
    with SqliteDatabase.open(tmp_path, dim=DIM) as database:
        assert database.add(rows_of(2)) == [4, 5]
        assert database.add([]) == []
        assert database.ids().tolist() == [1, 4, 5]


def test_a_clock_that_goes_back_does_not_change_the_order_of_ids(database: SqliteDatabase) -> None:
    ids = [database.add([Memory(time_ns=time)])[0] for time in (100, -50, 7, 7)]
    assert ids == sorted(ids)
    assert database.ids(order="newest").tolist() == [1, 4, 3, 2]
    assert database.ids(order="oldest").tolist() == [2, 3, 4, 1]


def matches(row: Memory, query: Filter) -> bool:
    """The filter by a loop over plain values."""
    x, y, _ = row.position
    words = f"{row.label} {row.caption}".lower().replace("é", "e").split()
    tests = [
        query.text is None or all(word.lower().replace("é", "e") in words for word in query.text.split()),
        query.between_ns is None or query.between_ns[0] <= row.time_ns <= query.between_ns[1],
        query.labels is None or row.label in query.labels,
        query.kinds is None or row.kind in query.kinds,
        query.states is None or row.state in query.states,
        query.map_id is None or row.map_id == query.map_id,
        query.marked is None or row.marked == query.marked,
        row.confidence >= query.min_confidence,
        query.box is None or (query.box[0] <= x <= query.box[2] and query.box[1] <= y <= query.box[3]),
        query.circle is None or np.hypot(x - query.circle[0], y - query.circle[1]) <= query.circle[2],
        # The only polygon that is asked for is the triangle below the diagonal of a square.
        query.polygon is None or (-5 <= x <= 5 and -5 <= y <= x),
    ]
    return all(tests)


FILTERS = [
    Filter(),
    Filter(text="red chair"),
    Filter(text="CAFE cat"),
    Filter(text="red", labels=["cup"], box=(-5, -5, 5, 5)),
    Filter(between_ns=(100, 300)),
    Filter(between_ns=(100, 900), labels=["cup", "car"], map_id="home"),
    Filter(labels=["cat"], kinds=["place", "note"]),
    Filter(labels=[]),
    Filter(labels=[str(number) for number in range(300)] + ["car"]),
    Filter(states=["gone"], marked=True),
    Filter(min_confidence=0.7, map_id="work"),
    Filter(box=(0, 0, 3, 4)),
    Filter(circle=(1, 1, 4)),
    Filter(circle=(1, 1, 4), box=(0, 0, 3, 4), kinds=["object"]),
    Filter(box=(0, 0, 1, 1), circle=(9, 9, 1)),
    Filter(polygon=[(-5, -5), (5, -5), (5, 5)]),
    Filter(polygon=[(-5, -5), (5, -5), (5, 5)], text="door", min_confidence=0.2),
    Filter(map_id="nowhere"),
]


#: Where the index over places and the ways of looking change from few to many.
SIZES = {
    "as released": {},
    "all few": {"BROAD": 1e-9, "SCATTERED": 10**6},
    "blocks, all many": {"BROAD": 1e9, "FEW": 1, "PROBES": 0, "STRETCH": 2, "SCATTERED": 0},
    "probes": {"BROAD": 1e9, "FEW": 1, "COUNTED": 2, "STRETCH": 2},
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("query", FILTERS, ids=range(len(FILTERS)))
def test_filters_agree_with_a_loop(
    query: Filter, filled: SqliteDatabase, sizes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in sizes.items():
        module = next(module for module in (places, poses, search) if hasattr(module, name))
        monkeypatch.setattr(module, name, value)
    rows = filled.get(filled.ids())
    kept = [row for row in rows if matches(row, query)]
    assert filled.ids(query).tolist() == [row.id for row in kept]
    assert filled.count(query) == len(kept)
    newest = sorted(kept, key=lambda row: (-row.time_ns, -row.id))  # type: ignore[operator]
    oldest = sorted(kept, key=lambda row: (row.time_ns, row.id))
    for limit in (None, 3):
        assert filled.ids(query, order="newest", limit=limit).tolist() == [row.id for row in newest][:limit]
        assert filled.ids(query, order="oldest", limit=limit).tolist() == [row.id for row in oldest][:limit]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "TAIL", 100)
        patch.setattr(places, "BLOCK", 8)
        with SqliteDatabase.open(tmp_path_factory.mktemp("filled"), dim=DIM) as opened:
            opened.add(rows_of(430))
            opened.add(rows_of(70, seed=1))
            opened.remove(range(1, 500, 7))
            yield opened


def test_text_is_ranked_and_nothing_in_it_is_syntax(database: SqliteDatabase) -> None:
    captions = [
        "red chair",
        "red red chair by the door",
        "door",
        "chair NOT red",
        'say "label:cup"',
        "x OR y",
    ]
    database.add([Memory(time_ns=0, caption=text, label="cup") for text in captions])
    hits = database.search_text("red chair")
    assert sorted(hits.ids.tolist()) == [1, 2, 4]
    assert (np.diff(hits.scores) <= 0).all()
    assert (hits.scores > 0).any()
    assert set(database.search_text("red door", any_word=True).ids.tolist()) == {1, 2, 3, 4}
    assert database.search_text("chair", Filter(text="door")).ids.tolist() == [2]
    assert database.search_text("red", limit=1).ids.shape == (1,)
    assert database.ids(Filter(text="caption:red")).tolist() == []
    assert database.ids(Filter(text="x OR y")).tolist() == [6]
    assert database.ids(Filter(text='"label:cup"')).tolist() == [5]
    tricks = [
        '"',
        "'",
        'a"b',
        "*",
        "chair*",
        "NEAR(red chair)",
        "-red",
        "^red",
        "(",
        "red)",
        "{zz}:",
        "\\",
        "?",
        "😀",
    ]
    tricks += [
        "'; DROP TABLE memory; --",
        "red AND",
        "+",
        "%",
        "_",
        "",
        " ",
        "\u0301",
        "a\u0301",
        "٣",
        "x" * 100_000,
    ]
    for text in tricks:
        for query in (text, f"{text} red"):
            assert set(database.ids(Filter(text=query)).tolist()) <= {1, 2, 4}
            database.search_text(query, any_word=True)
    assert database.check().ok


def test_of_very_many_that_have_a_word_the_latest_are_compared(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add([Memory(time_ns=i, caption="red " * (9 - i), label="ab"[i % 2]) for i in range(8)])
    assert database.search_text("red", limit=1).ids.tolist() == [1]
    monkeypatch.setattr(search, "RANKED", 4)
    assert database.search_text("red", limit=1).ids.tolist() == [5]
    assert database.search_text("red", Filter(labels=["b"]), limit=1).ids.tolist() == [2]
    assert database.search_text("red", limit=8).ids.tolist() == list(range(1, 9))
    assert database.search_text("blue").ids.size == 0


def test_sql_and_paths_in_texts_are_just_text(tmp_path: Path) -> None:
    nasty = [
        "'; DROP TABLE memory; --",
        "../../etc/passwd",
        '"',
        "%s?:x",
        "a' OR '1'='1",
        "\n\t",
        "🦊" * 50,
        "NULL",
    ]
    with SqliteDatabase.open(tmp_path / "a ? b#c%20'", dim=DIM) as database:
        for text in nasty:
            row = Memory(
                time_ns=0,
                label=text,
                map_id=text,
                caption=text,
                evidence=text,
                provenance=text,
                payload={text: text},
            )
            (id,) = database.add([row])
            assert database.get([id]) == [dataclasses.replace(row, id=id)]
            assert database.ids(Filter(labels=[text], map_id=text)).tolist() == [id]
            assert database.ids(Filter(labels=[text]), order="newest", limit=1).tolist() == [id]
        assert database.maps() == sorted(nasty, key=str.encode)
        assert database.check().ok
    assert not (tmp_path / "etc").exists()
    with SqliteDatabase.open(tmp_path / "a ? b#c%20'", readonly=True) as database:
        assert database.count() == len(nasty)


def test_bad_rows_store_nothing(database: SqliteDatabase) -> None:
    database.add(rows_of(2))
    good = rows_of(1)[0]
    wrong = np.ones(DIM + 1, np.float32)
    for row, error in (
        (dataclasses.replace(good, embedding=wrong), DimensionError),
        (dataclasses.replace(good, id=5), ValueError),
        (dataclasses.replace(good, payload={"a": float("nan")}), ValueError),
        (dataclasses.replace(good, payload={"a": object()}), TypeError),
        (dataclasses.replace(good, embeddings={"default": wrong}), ValueError),
        ("a row", TypeError),
    ):
        with pytest.raises(error):
            database.add([good, row])  # type: ignore[list-item]
    mutable = np.ones(DIM, np.float32)
    spoilt = dataclasses.replace(good, embedding=mutable)
    mutable[3] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        database.add([spoilt])
    with pytest.raises(ValueError, match="finite"):
        dataclasses.replace(good, embedding=np.full(DIM, np.nan))
    database.add([dataclasses.replace(good, embeddings={"clip": wrong})])
    with pytest.raises(DimensionError, match="'clip' vector has 3 numbers"):
        database.add([dataclasses.replace(good, embeddings={"clip": wrong[:3]})])
    assert database.count() == 3
    assert database.check().ok


def test_a_ten_megabyte_payload(database: SqliteDatabase) -> None:
    big = Memory(time_ns=0, payload={"raw": "x" * 10_000_000}, caption="big")
    (id,) = database.add([big])
    database.touch({id: 1}, 5)
    assert database.get([id])[0].payload == big.payload
    database.undo(database.remove([id]))
    assert database.get([id])[0].payload == big.payload


def test_unknown_ids_are_named_and_stop_everything(database: SqliteDatabase) -> None:
    ids = database.add(rows_of(3))
    with pytest.raises(UnknownMemoryError, match="no memory has the id 99, 98"):
        database.get([ids[0], 99, 98])
    for call in (
        lambda: database.remove([ids[0], 99]),
        lambda: database.update([dataclasses.replace(rows_of(1)[0], id=99)]),
        lambda: database.repose([ids[0], 99], np.zeros((2, 3)), np.zeros(2)),
        lambda: database.apply(add=rows_of(1), remove=[99], operation="merge"),
    ):
        before = database.generation
        with pytest.raises(UnknownMemoryError, match="99"):
            call()
        assert database.generation == before
    assert database.count() == 3
    assert database.add(rows_of(1)) == [4]
    with pytest.raises(TypeError):
        database.get(["1"])  # type: ignore[list-item]
    assert database.vectors([99, 2]).ids.tolist() == [2]


def test_update_changes_every_column_and_is_undone(database: SqliteDatabase) -> None:
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


def test_a_merge_is_one_operation(database: SqliteDatabase) -> None:
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


def test_what_was_built_upon_is_not_undone(database: SqliteDatabase) -> None:
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
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
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


def test_changes_are_the_difference_of_two_moments(database: SqliteDatabase) -> None:
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


def test_changes_tell_apart_what_only_moved(database: SqliteDatabase) -> None:
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


def test_trimming_the_log_frees_what_was_kept_for_undoing(database: SqliteDatabase) -> None:
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


def test_the_log_is_append_only(database: SqliteDatabase, tmp_path: Path) -> None:
    database.add(rows_of(1))
    connection = sqlite3.connect(tmp_path / "store" / "memory.db")
    for sql in ("DELETE FROM log", "UPDATE log SET operation = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(sql)
    connection.close()


def test_accesses_are_counted_without_a_new_generation(database: SqliteDatabase) -> None:
    ids = database.add(rows_of(3))
    generation = database.generation
    database.touch({ids[0]: 2, ids[2]: 1, 99: 1}, 77)
    columns = database.scan_columns()
    assert columns.access_counts.tolist() == [2, 0, 1]
    assert columns.accessed_ns.tolist() == [77, columns.time_ns[1], 77]
    assert database.generation == generation
    assert database.get(ids[:1])[0].time_ns == columns.time_ns[0]


def test_scans_give_everything_in_stretches(filled: SqliteDatabase) -> None:
    rows = filled.get(filled.ids())
    after, seen, halves = 0, [], []
    while (part := filled.scan_vectors(after, limit=64)).ids.size:
        seen += part.ids.tolist()
        halves.append(part.halves)
        after = int(part.ids[-1])
    assert seen == [row.id for row in rows]
    stacked = np.concatenate(halves)
    assert stacked.dtype == np.float16
    np.testing.assert_array_equal(stacked.astype(np.float32), np.stack([row.embedding for row in rows]))
    picked = filled.vectors(seen[::-3])
    assert picked.ids.tolist() == seen[::-3]
    np.testing.assert_array_equal(picked.halves, stacked[::-3])
    columns = filled.columns([*seen, 10**9])
    assert columns.ids.tolist() == seen
    assert columns.labels == [row.label for row in rows]
    assert columns.map_ids == [row.map_id for row in rows]
    np.testing.assert_array_equal(columns.positions, [row.position for row in rows])
    np.testing.assert_array_equal(columns.confidence, [row.confidence for row in rows])
    assert np.isnan(columns.importance).all()
    assert filled.scan_columns(after_id=seen[-1]).ids.size == 0
    assert filled.scan_columns(after_id=seen[-1]).positions.shape == (0, 3)
    assert filled.scan_vectors(slot="unknown").ids.size == 0
    assert filled.vectors(seen, slot="unknown").ids.size == 0


def test_numbers_that_single_precision_cannot_hold(database: SqliteDatabase) -> None:
    places = [(16777217.0, 0.1), (1e300, -1e300), (1e-45, 1e-310), (-0.0, 5.0)]
    ids = database.add([Memory(time_ns=0, position=(x, y, 0.0)) for x, y in places])
    for id, (x, y) in zip(ids, places, strict=True):
        assert database.ids(Filter(box=(x, y, x, y))).tolist() == [id]
        assert id in database.ids(Filter(circle=(x, y, 0.0)))
        assert id in database.ids(Filter(polygon=[(x, y), (x, y), (x, y)]))
    assert database.ids(Filter(box=(-1e308, -1e308, 1e308, 1e308))).tolist() == ids
    assert database.ids(Filter(circle=(0, 0, 1e308))).tolist() == ids
    assert database.ids(Filter(box=(16777216.0, 0, 16777216.0, 1))).size == 0
    assert database.check().ok


def test_readers_and_closed_handles_say_so(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=DIM) as writer:
        writer.add(rows_of(2))
        with SqliteDatabase.open(tmp_path, readonly=True) as reader:
            assert reader.count() == 2
            assert reader.dim == DIM
            writer.add(rows_of(1))
            assert reader.count() == 3
            for call in (lambda: reader.add(rows_of(1)), reader.scrub, lambda: reader.check(repair=True)):
                with pytest.raises(StoreReadOnlyError, match="for reading only"):
                    call()
            assert reader.check().ok
    for call in (writer.count, lambda: writer.add(rows_of(1)), reader.count, writer.check):
        with pytest.raises(StoreClosedError, match="closed"):
            call()
    writer.close()
    with SqliteDatabase.open(tmp_path) as database, pytest.MonkeyPatch.context() as patch:
        own = os.getpid()
        patch.setattr(os, "getpid", lambda: own + 1)
        with pytest.raises(StoreClosedError, match="fork"):
            database.count()
        database.close()
        patch.undo()
        assert database.count() == 3


def test_opening_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match=r"memory\.db is missing"):
        SqliteDatabase.open(tmp_path / "none", readonly=True)
    with pytest.raises(NotAStoreError, match=r"memory\.db is missing"):
        SqliteDatabase.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="new store"):
        SqliteDatabase.open(tmp_path / "none")
    with pytest.raises(ValueError, match="dim must be at least 1"):
        SqliteDatabase.open(tmp_path / "none", dim=0)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStoreError, match="is a file"):
        SqliteDatabase.open(tmp_path / "file", dim=DIM)
    SqliteDatabase.open(tmp_path / "deep" / "er", dim=DIM).close()
    with pytest.raises(DimensionError, match="8 numbers, it was opened with dim=9"):
        SqliteDatabase.open(tmp_path / "deep" / "er", dim=9)
    SqliteDatabase.open(tmp_path / "deep" / "er").close()


def test_a_backup_is_a_store_of_one_moment(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "STEP_PAGES", 16)
    ids = database.add(rows_of(300))
    seen: list[tuple[int, int]] = []

    def disturb(done: int, total: int) -> None:
        seen.append((done, total))
        database.add(rows_of(1))

    file = database.backup(tmp_path / "copy", disturb)
    assert file == tmp_path / "copy" / "memory.db"
    assert seen[-1][0] == seen[-1][1] > 0
    assert len(seen) > 2
    assert database.count() == 300 + len(seen)
    with SqliteDatabase.open(tmp_path / "copy") as copy:
        assert copy.get(copy.ids()) == database.get(ids)
        assert copy.check().ok
        assert copy.add(rows_of(1)) == [301]
    with pytest.raises(FileExistsError, match="without a store"):
        database.backup(tmp_path / "copy")


def test_a_backup_that_was_interrupted_is_no_store(database: SqliteDatabase, tmp_path: Path) -> None:
    database.add(rows_of(300))
    folder = tmp_path / "copy"

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.backup(folder, stop, beside={"config.json": b"{}"})
    assert list(folder.iterdir()) == []
    # Killed: what SQLite was writing stays, with a journal that belongs to it.
    script = (
        "import os, sys; from memory.persistence.sqlite.database import SqliteDatabase\n"
        "with SqliteDatabase.open(sys.argv[1], readonly=True) as database:\n"
        "    database.backup(sys.argv[2], lambda done, total: os._exit(9), beside={'config.json': b'{}'})\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(database.folder), str(folder)], check=False)
    assert killed.returncode == 9
    assert [file.name.partition("-")[0] for file in folder.iterdir()].count("memory.db.new") >= 1
    (folder / "memory.db.new-journal").write_bytes(b"of another time")
    with pytest.raises(NotAStoreError):
        SqliteDatabase.open(folder, readonly=True)
    database.backup(folder, beside={"config.json": b"{}"})
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "memory.db"]
    with SqliteDatabase.open(folder) as copy:
        assert copy.check().ok
        assert copy.count() == 300


def test_a_backup_appears_only_with_what_belongs_to_it(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add(rows_of(5))
    folder = tmp_path / "copy"
    renames: list[str] = []
    rename = os.replace

    def watched(old: str, new: Path) -> None:
        renames.append(Path(new).name)
        if Path(new).name == "memory.db":
            assert (folder / "config.json").read_bytes() == b"[]"
            raise OSError("the power is gone")
        rename(old, new)

    monkeypatch.setattr(os, "replace", watched)
    with pytest.raises(OSError, match="power"):
        database.backup(folder, beside={"config.json": b"[]"})
    monkeypatch.undo()
    assert renames == ["config.json", "memory.db"]
    with pytest.raises(NotAStoreError):
        SqliteDatabase.open(folder, readonly=True)
    database.backup(folder, beside={"config.json": b"{}"})
    assert (folder / "config.json").read_bytes() == b"{}"


def test_sizes(database: SqliteDatabase) -> None:
    database.add(rows_of(20))
    stats = database.stats()
    assert stats.memories == 20 == sum(stats.by_map.values()) == sum(stats.by_kind.values())
    assert stats.vectors == {"default": 20}
    assert (stats.generation, stats.next_id) == (1, 21)
    assert stats.file_bytes > 0
    assert stats.to_json()["memories"] == 20
