"""What can go wrong with files and disks: a clear error, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from memory.errors import (
    CorruptStoreError,
    NotAStoreError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from memory.persistence.sqlite import places
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter, Query
from memory.store import MemoryStore
from memory.types import Memory


def rows_of(count: int, seed: int = 0) -> list[Memory]:
    random = np.random.default_rng(seed)
    return [
        Memory(
            time_ns=i,
            position=tuple(random.uniform(0, 9, 3)),
            label=f"label {i % 7}",
            caption=f"number {i}",
            embedding=random.standard_normal(64),
        )
        for i in range(count)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed store of 300 memories, two blocks of them in the index over places."""
    monkeypatch.setattr(places, "TAIL", 100)
    with SqliteDatabase.open(tmp_path / "store", dim=64) as database:
        database.add(rows_of(300))
    return tmp_path / "store"


def test_a_second_writer_is_told_who_writes(folder: Path) -> None:
    with SqliteDatabase.open(folder) as database:
        with pytest.raises(StoreLockedError, match=f"written by process {os.getpid()}"):
            SqliteDatabase.open(folder)
        code = (
            "import sys\n"
            "from memory.persistence.sqlite.database import SqliteDatabase\n"
            "from memory.errors import StoreLockedError\n"
            "with SqliteDatabase.open(sys.argv[1], readonly=True) as reader: print(reader.count())\n"
            "try: SqliteDatabase.open(sys.argv[1])\n"
            "except StoreLockedError as error: print(error)"
        )
        run = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
        assert run.stdout.startswith("300\n")
        assert f"process {os.getpid()}." in run.stdout
        assert database.add(rows_of(1)) == [301]
    SqliteDatabase.open(folder).close()


def test_a_full_database_keeps_what_it_has(folder: Path) -> None:
    with SqliteDatabase.open(folder) as database:
        writer = database._writer.connection
        assert writer is not None
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 10}")
        with pytest.raises(StoreFullError, match="no room left"):
            database.add(rows_of(2000))
        assert database.count() == 300
        assert database.check().ok
        writer.execute("PRAGMA max_page_count = 1000000")
        assert database.add(rows_of(1)) == [301]


def test_a_disk_without_room_keeps_what_it_has(
    limit_file_size: Callable[[int], AbstractContextManager[None]], folder: Path
) -> None:
    size = max(file.stat().st_size for file in folder.iterdir())
    with SqliteDatabase.open(folder) as database:
        kept = 300
        error: StoreError | None = None
        with limit_file_size(size + 200_000):
            while error is None and kept < 10_000:
                try:
                    kept = max(database.add(rows_of(10)))
                except StoreError as caught:
                    error = caught
        assert "memory.db" in str(error)
        assert 300 < kept < 10_000
        assert database.ids().tolist() == list(range(1, kept + 1))
        assert database.check().ok
        assert database.add(rows_of(1)) == [kept + 1]
    with SqliteDatabase.open(folder) as database:
        assert database.count() == kept + 1
        assert database.check().ok


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """As a user to whom the rights of files apply; root passes over them."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_that_cannot_be_written_is_read() -> None:
    outer = Path(tempfile.mkdtemp())
    folder = outer / "store"
    try:
        with SqliteDatabase.open(folder, dim=64) as database:
            database.add(rows_of(20))
        outer.chmod(0o755)
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        with unprivileged(folder):
            with pytest.raises(StoreReadOnlyError, match="not writable"):
                SqliteDatabase.open(folder)
            with pytest.raises(StoreReadOnlyError, match="cannot create"):
                SqliteDatabase.open(folder / "new", dim=4)
            with SqliteDatabase.open(folder, readonly=True) as database:
                assert database.count(Filter(text="number")) == 20
                assert database.check().ok
                with pytest.raises(StoreReadOnlyError, match="for reading only"):
                    database.remove([1])
    finally:
        folder.chmod(0o755)
        shutil.rmtree(outer)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_refused(folder: Path, share: float) -> None:
    file = folder / "memory.db"
    size = int(file.stat().st_size * share)
    with file.open("r+b") as stream:
        stream.truncate(size)
    for readonly in (True, False):
        with pytest.raises(CorruptStoreError, match="truncated"):
            SqliteDatabase.open(folder, dim=64, readonly=readonly)
    assert file.stat().st_size == size


def test_a_missing_file_with_a_log_is_not_made_anew(folder: Path) -> None:
    (folder / "memory.db").rename(folder / "elsewhere")
    (folder / "memory.db-wal").write_bytes(b"x" * 100)
    with pytest.raises(CorruptStoreError, match="missing, but its log"):
        SqliteDatabase.open(folder, dim=64)
    assert not (folder / "memory.db").exists()


@pytest.mark.parametrize("size", [0, 31, 32, 33, 4096 + 32 + 23])
def test_a_log_without_a_whole_frame_holds_nothing(folder: Path, size: int) -> None:
    """What a writer leaves that was killed before its first frame was written."""
    log = folder / "memory.db-wal"
    with SqliteDatabase.open(folder, dim=64) as database:
        database.add(rows_of(1, seed=9))
        begun = log.read_bytes()[:size]
        before = database.count()
    log.write_bytes(begun)
    with SqliteDatabase.open(folder, dim=64) as database:
        assert database.count() == before
        assert database.check().ok


def test_a_file_of_other_bytes_is_refused(folder: Path) -> None:
    (folder / "memory.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(NotAStoreError, match="not a SQLite database"):
        SqliteDatabase.open(folder)


def test_remains_of_an_interrupted_creation_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "memory.db.new").write_bytes(b"half")
    (tmp_path / "memory.db.new-journal").write_bytes(b"half")
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        assert database.add([Memory(time_ns=0)]) == [1]
    assert {file.name for file in tmp_path.iterdir()} == {"memory.db", "writer.lock"}


def test_corrupted_pages_are_errors_not_answers(folder: Path) -> None:
    """Every page but the first in turn: whatever is still answered is right, and the check sees it."""
    file = folder / "memory.db"
    sound = file.read_bytes()
    with SqliteDatabase.open(folder) as database:
        expected = {row.id: row.caption for row in database.get(database.ids())}
    unseen, errors = [], []
    pages = range(4096, len(sound), 4096 * 3)
    for start in pages:
        file.write_bytes(sound[:start] + b"\xa5" * 4096 + sound[start + 4096 :])
        try:
            with SqliteDatabase.open(folder) as database:
                if database.check().ok:
                    unseen.append(start)
                for row in database.get(database.ids(), vectors=False):
                    assert expected[row.id] == row.caption  # type: ignore[index]
        except StoreError as error:
            errors.append(str(error))
    assert unseen == []
    assert all("memory.db" in error for error in errors)
    file.write_bytes(sound)
    with SqliteDatabase.open(folder) as database:
        assert database.check().ok


def spoil(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / "memory.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (("DELETE FROM place WHERE block = 1",), "place: block 1 is not where its memories are"),
        (("UPDATE place SET x1 = 5 WHERE block = 1",), "place: block 1 is not where"),
        (("INSERT INTO place VALUES (999, 0, 0, 0, 0)",), "place: block 999 is in the tree only"),
        (("DELETE FROM block WHERE block = 2",), "place: memory "),
        (("UPDATE block SET points = zeroblob(4096) WHERE block = 1",), "place: memory "),
        (("UPDATE block SET ids = x'00' WHERE block = 1",), "place: block 1 has 1 and 4096 bytes"),
        (("INSERT INTO words (rowid, label, caption) VALUES (999, 'a', 'b')",), "words: memory 999"),
        (("UPDATE body SET caption = 'other' WHERE id = 5",), "words: the index does not match"),
        (("INSERT INTO words (words) VALUES ('delete-all')",), "words: memory 1 "),
        (("INSERT INTO vector (key, half) VALUES (64000, x'00')",), "vector: key 64000 has no memory"),
        (("INSERT INTO body (id, caption) VALUES (999, '')",), "body: 999 has no memory"),
        (
            ("INSERT INTO pose (chunk, poses) SELECT 9, poses FROM pose WHERE chunk = 1",),
            "pose: 1134 has no memory",
        ),
        (
            ("INSERT INTO spread (chunk, covariances) VALUES (9, zeroblob(6048))",),
            "spread: 1134 has no memory",
        ),
    ],
)
def test_indexes_are_rebuilt_from_the_rows(folder: Path, statements: tuple[str, ...], said: str) -> None:
    spoil(folder, *statements)
    with SqliteDatabase.open(folder) as database:
        found = database.check()
        assert not found.ok
        assert said in str(found)
        assert database.check().to_json()["problems"] == list(found.problems)
        repaired = database.check(repair=True)
        assert repaired.ok, str(repaired)
        assert repaired.repaired
        assert "sound" in str(repaired)
        assert database.check().ok
        # What says something else than was stored is kept aside, not taken for the truth.
        expected = 299 if "other" in statements[0] else 300
        assert database.count() == expected
        assert database.count(Filter(box=(-1, -1, 10, 10))) == expected
        assert database.count(Filter(text="number")) == expected
        assert not database.check(repair=True).repaired


@pytest.mark.parametrize(
    ("statement", "said", "lost", "left"),
    [
        (
            "UPDATE vector SET half = x'0000' WHERE key = 64",
            "vector: key 64 has 2 bytes",
            "vectors of encoder",
            300,
        ),
        (
            "UPDATE vector SET half = zeroblob(128) WHERE key = 128",
            "vector: key 128 is not a unit vector",
            "vectors of encoder 'default' of memory 2",
            300,
        ),
        (
            "INSERT INTO vector (key, half) VALUES (65, x'003c')",
            "vector: key 65 has no encoder",
            "",
            300,
        ),
        ("DELETE FROM body WHERE id = 9", "body: memory 9 has none", "the texts of memory 9", 299),
        ("DELETE FROM memory WHERE id = 9", "memory: 9 is missing, the log", "the row of memory 9", 299),
        ("DELETE FROM vector WHERE key = 64", "vector: the vectors of memory 1", "vectors of encoder", 300),
        (
            "UPDATE memory SET label = 'x' WHERE id = 9",
            "memory: memory 9 is not what was stored",
            "row of",
            299,
        ),
        ("UPDATE body SET payload = '{' WHERE id = 9", "body: memory 9 is not what was", "the texts of", 299),
        (
            "UPDATE slot SET name = 'other'",
            "slot: row 0 is not what was stored",
            "the name of encoder 0",
            300,
        ),
        (
            "DELETE FROM pose WHERE chunk = 1",
            "pose: memory 126 has none",
            "the pose of memories 126 to 251",
            174,
        ),
        (
            "UPDATE pose SET poses = x'00' WHERE chunk = 1",
            "pose: row 1 has 1 bytes",
            "the pose of memories",
            174,
        ),
        ("UPDATE meta SET value = 7 WHERE name = 'placed'", "meta: placed is not what", "", 300),
    ],
)
def test_what_cannot_be_rebuilt_is_kept_aside_and_named(
    folder: Path, statement: str, said: str, lost: str, left: int
) -> None:
    spoil(folder, statement)
    damaged = (folder / "memory.db").read_bytes()
    if "slot" not in statement:
        with SqliteDatabase.open(folder, readonly=True) as reader:
            assert said in str(reader.check())
        with SqliteDatabase.open(folder) as database:
            report = database.check(repair=True)
    else:
        with pytest.raises(CorruptStoreError, match="length of its vectors"):
            SqliteDatabase.open(folder)
        report = SqliteDatabase.repair(folder)
    assert report.ok, str(report)
    assert lost in str(report.lost)
    assert bool(report.lost) == bool(lost)
    kept = sorted(path for path in folder.iterdir() if "damaged" in path.name)
    assert (folder / "memory.db.damaged-1").stat().st_size == len(damaged)
    with SqliteDatabase.open(folder) as database:
        assert database.count() == left
        assert database.check().ok
        # What is left of the others is not thrown away.
        lines = [json.loads(line) for path in kept[1:] for line in path.read_text().splitlines()]
        assert len(lines) == 300 - left
        assert all(line["body"] or line["memory"] for line in lines)
        assert database.add(rows_of(1)) == [301]
        assert database.log()[-2].operation == "repair"


def test_indexes_follow_a_repair(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=64) as store:
        store.add(rows_of(20))
        store.query(Query(like=3, k=2))
    spoil(tmp_path / "store", "DELETE FROM vector WHERE key = 64 * 4", "DELETE FROM body WHERE id = 5")
    with MemoryStore.open(tmp_path / "store") as store:
        assert store.search(rows_of(20)[3].embedding[None], k=1).ids.tolist() == [[4]]
        assert store.check(repair=True).ok
        found = store.search(rows_of(20)[3].embedding[None], k=20).ids[0].tolist()
        assert sorted(found) == [1, 2, 3, *range(6, 21)]
        assert store.explain(5).status == "forgotten"


@pytest.mark.parametrize(
    ("table", "column", "key", "id"),
    [
        ("pose", "poses", 1, 130),
        ("body", "caption", 9, 9),
        ("body", "payload", 9, 9),
        ("memory", "label", 9, 9),
        ("vector", "half", 64 * 9, 9),
    ],
)
def test_one_flipped_bit_is_turned_back(folder: Path, table: str, column: str, key: int, id: int) -> None:
    with SqliteDatabase.open(folder) as database:
        before = {row.id: row for row in database.get(database.ids())}
    connection = sqlite3.connect(folder / "memory.db")
    name = {"memory": "id", "body": "id", "pose": "chunk", "vector": "key"}[table]
    (blob,) = connection.execute(
        f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {name} = ?", (key,)
    ).fetchone()
    connection.close()
    data = (folder / "memory.db").read_bytes()
    at = data.index(blob) if table in ("pose", "vector") else data.index(before[9].caption.encode())
    if table == "memory":
        at = data.index(b"defaultobjectlabel 1")  # Its map, kind and label.
    (folder / "memory.db").write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    with SqliteDatabase.open(folder) as database:
        assert not database.check().ok
        report = database.check(repair=True)
        assert report.ok
        assert not report.lost
        assert "one flipped bit was corrected in each of 1 rows" in str(report)
        for row in database.get(database.ids()):
            assert row.caption == before[row.id].caption
            assert row.position == before[row.id].position
            np.testing.assert_array_equal(row.embedding, before[row.id].embedding)


def test_reading_what_is_damaged_is_an_error_that_names_the_memory(folder: Path) -> None:
    spoil(
        folder,
        "UPDATE body SET caption = 'nothing' WHERE id = 3",
        "UPDATE memory SET confidence = 0.25 WHERE id = 4",
        "UPDATE body SET payload = '[1' WHERE id = 5",
        "UPDATE memory SET label = CAST(x'ff31' AS TEXT) WHERE id = 6",
        "UPDATE vector SET half = randomblob(128) WHERE key = 7 * 64",
        "UPDATE memory SET count = 'many' WHERE id = 8",
    )
    with SqliteDatabase.open(folder) as database:
        for id in range(3, 9):
            with pytest.raises(CorruptStoreError, match=rf"memory {id} |Could not decode"):
                database.get([id])
        assert [row.id for row in database.get([1, 2, 9])] == [1, 2, 9]
        report = str(database.check())
        assert all(f"memory {id}" in report for id in range(3, 9))


def test_a_file_system_without_shared_memory_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memory.persistence.sqlite import connection as connections

    real = connections.connect

    def in_memory(file: Path, mode: connections.Mode) -> sqlite3.Connection:
        return real(file, mode) if mode != "rw" else sqlite3.connect(":memory:", isolation_level=None)

    monkeypatch.setattr(connections, "connect", in_memory)
    with pytest.raises(StoreError, match="cannot use a write-ahead log"):
        connections.connect_writer(folder / "memory.db")
