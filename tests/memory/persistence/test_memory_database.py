"""The database against plain Python: what goes in comes out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory.errors import (
    DimensionError,
    NotAStoreError,
    StoreClosedError,
    StoreReadOnlyError,
    UnknownMemoryError,
)
from memory.persistence.sqlite.database import SqliteDatabase
from memory.types import Memory

DIM = 8
Rows = Callable[..., list[Memory]]


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


def test_stored_vectors_keep_their_bits_when_written_again(database: SqliteDatabase, rows_of: Rows) -> None:
    ids = database.add(rows_of(200))
    first = database.vectors(ids).halves
    database.update(database.get(ids))
    np.testing.assert_array_equal(database.vectors(ids).halves.view(np.uint16), first.view(np.uint16))


def test_ids_rise_and_are_never_used_again(tmp_path: Path, rows_of: Rows) -> None:
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


def test_bad_rows_store_nothing(database: SqliteDatabase, rows_of: Rows) -> None:
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
    with pytest.raises(DimensionError, match="'clip' embedding has 3 numbers"):
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


def test_unknown_ids_are_named_and_stop_everything(database: SqliteDatabase, rows_of: Rows) -> None:
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


def test_accesses_are_counted_without_a_new_generation(database: SqliteDatabase, rows_of: Rows) -> None:
    ids = database.add(rows_of(3))
    generation = database.generation
    database.touch({ids[0]: 2, ids[2]: 1, 99: 1}, 77)
    columns = database.scan_columns()
    assert columns.access_counts.tolist() == [2, 0, 1]
    assert columns.accessed_ns.tolist() == [77, columns.time_ns[1], 77]
    assert database.generation == generation
    assert database.get(ids[:1])[0].time_ns == columns.time_ns[0]


def test_readers_and_closed_handles_say_so(tmp_path: Path, rows_of: Rows) -> None:
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
    with pytest.raises(DimensionError, match="8 numbers, but was opened with dim=9"):
        SqliteDatabase.open(tmp_path / "deep" / "er", dim=9)
    SqliteDatabase.open(tmp_path / "deep" / "er").close()


def test_sizes(database: SqliteDatabase, rows_of: Rows) -> None:
    database.add(rows_of(20))
    stats = database.stats()
    assert stats.memories == 20 == sum(stats.by_map.values()) == sum(stats.by_kind.values())
    assert stats.vectors == {"default": 20}
    assert (stats.generation, stats.next_id) == (1, 21)
    assert stats.file_bytes > 0
    assert stats.to_json()["memories"] == 20
