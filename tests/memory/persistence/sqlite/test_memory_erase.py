"""Erasing: the bytes of what was removed are found in no file of the store."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from memory.errors import EraseError, StoreReadOnlyError, UndoError
from memory.persistence.sqlite import connection as connections
from memory.persistence.sqlite import places, upkeep
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

SECRET = "Xylophonist"
PLACE = (1234.56789, -987.654321, 0.0)
VISITS = ((0x51A2B3C4D5E6F701, 0x51A2B3C4D5E6F702, 7), (0x51A2B3C4D5E6F7FF, 0x61A2B3C4D5E6F7FF, 5))


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index over places has blocks of what is erased."""
    monkeypatch.setattr(places, "TAIL", 10)


def traces(folder: Path) -> list[str]:
    """Files that hold the words of the secret, also in lower case, its vector or its place."""
    blobs = [
        (vector / np.linalg.norm(vector)).astype("<f2").tobytes()
        for vector in (np.linspace(1, 2, 16), np.linspace(3, 1, 8))
    ]
    x, y = np.float64(PLACE[0]), np.float64(PLACE[1])
    marks = [SECRET.encode(), SECRET.lower().encode(), *blobs]
    marks += [base64.b64encode(blob)[:20] for blob in blobs]
    marks += [visit[0].to_bytes(8, order) for visit in VISITS for order in ("little", "big")]
    marks += [str(visit[0]).encode() for visit in VISITS]
    marks += [x.astype(">f8").tobytes(), y.astype("<f8").tobytes(), b"secret-bag"]
    found = []
    for file in folder.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        found += [f"{file.name}: {mark!r}" for mark in marks if mark in data]
    return found


def fill(database: SqliteDatabase, count: int = 400) -> int:
    """Ordinary memories and, among them, the one to erase, which was changed, moved, removed and restored."""
    plain = [
        Memory(
            time_ns=i, label=f"label {i % 9}", caption=f"plain {i}", position=(i, 0, 0), embedding=np.ones(16)
        )
        for i in range(count)
    ]
    database.add(plain)
    secret = Memory(
        time_ns=5,
        label=f"{SECRET} label",
        map_id=f"{SECRET} map",
        provenance=f"{SECRET} detector",
        caption=f"the {SECRET} was here",
        payload={"who": SECRET},
        evidence="secret-bag.mcap",
        position=PLACE,
        visits=VISITS,
        embedding=np.linspace(1, 2, 16),
        embeddings={"second": np.linspace(3, 1, 8)},
    )
    (id,) = database.add([secret])
    database.add(plain)
    database.update([dataclasses.replace(database.get([id])[0], reward=1.0)])
    database.repose([id, 1], np.zeros((2, 3)), np.zeros(2))
    database.undo(database.generation)
    database.undo(database.remove([id, 2]))
    return id


def test_no_byte_of_an_erased_memory_stays(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database)
        assert len({line.split(": ")[1] for line in traces(tmp_path)}) >= 12  # So the search does find them.
        database.count(Filter(text=SECRET))
        generation = database.remove([id], secure=True)
        assert traces(tmp_path) == []
        assert database.count() == 800
        assert database.count(Filter(text="plain")) == 800
        assert [entry.operation for entry in database.history(id)][-1] == "erase"
        with pytest.raises(UndoError, match="was erased"):
            database.undo(generation)
        assert id in database.changes(3).removed
        assert database.check().ok
    assert traces(tmp_path) == []


def test_plain_removal_keeps_it_for_undoing(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database, 10)
        database.remove([id])
        assert traces(tmp_path)
        database.undo(database.generation)
        assert database.get([id])[0].payload == {"who": SECRET}


def test_a_reader_in_the_way_is_reported_and_the_next_call_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_S", 0.1)
    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database, 10)
        with database._read() as reader:
            reader.execute("SELECT count(*) FROM memory").fetchone()
            with pytest.raises(EraseError, match="call scrub"):
                database.remove([id], secure=True)
            assert database.count() == 20
            assert traces(tmp_path)
        database.scrub()
        assert traces(tmp_path) == []


def test_an_interrupted_erasure_is_finished_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database, 10)
        monkeypatch.setattr(upkeep, "scrub", killed)
        with pytest.raises(KeyboardInterrupt):
            database.remove([id], secure=True)
        assert traces(tmp_path)
        monkeypatch.undo()
    with SqliteDatabase.open(tmp_path) as database:
        assert traces(tmp_path) == []
        assert database.count() == 20
        assert database.check().ok


def test_what_the_log_kept_of_a_memory_goes_by_itself_too(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database, 10)
        generation = database.remove([id, 3])
        database.redact([id])
        database.scrub()
        assert traces(tmp_path) == []
        assert database.generation == generation
        assert [memory.id for memory in database.before(generation)] == [3]
        with pytest.raises(UndoError, match="was erased"):
            database.undo(generation)
    with SqliteDatabase.open(tmp_path, readonly=True) as reader, pytest.raises(StoreReadOnlyError):
        reader.redact([])


def test_without_room_it_says_what_happened_and_the_store_opens_all_the_same(
    limit_file_size: Callable[[int], AbstractContextManager[None]], tmp_path: Path
) -> None:
    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database, 300)
        database.tidy()
        size = (tmp_path / "memory.db").stat().st_size
        with limit_file_size(size - 4096):
            with pytest.raises(EraseError, match=r"removed, but .* space.*call scrub"):
                database.remove([id], secure=True)
            assert database.count() == 600
            assert "old bytes stay" in str(database.check())
    with limit_file_size(size - 4096), SqliteDatabase.open(tmp_path) as database:
        (said,) = database.remarks
        assert "old bytes stay in the files" in said
        assert database.count() == 600
        with pytest.raises(EraseError, match="space"):
            database.remove([3], secure=True)
        assert database.count() == 599
    with SqliteDatabase.open(tmp_path) as database:
        assert database.remarks == []
        assert traces(tmp_path) == []
        assert database.check().ok


def test_a_reader_in_a_transaction_does_not_keep_a_store_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteDatabase.open(tmp_path, dim=16) as database:
        id = fill(database, 10)
        monkeypatch.setattr(upkeep, "scrub", lambda _: None)
        database.remove([id], secure=True)
        monkeypatch.undo()
        with SqliteDatabase.open(tmp_path, readonly=True) as reader, reader._read() as connection:
            connection.execute("SELECT count(*) FROM memory").fetchone()
            database.close()
            with SqliteDatabase.open(tmp_path) as again:
                assert "a reader still holds" in str(again.remarks)
                assert again.count() == 20
    with SqliteDatabase.open(tmp_path) as database:
        assert database.remarks == []
        assert traces(tmp_path) == []
