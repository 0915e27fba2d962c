"""Versions of the schema: a chain is run where the file stands, and newer files are refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from memory.errors import NotAStoreError, StoreVersionError
from memory.persistence.sql import Migration
from memory.persistence.sqlite import files, migrations
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.migrations import MIGRATIONS, migrate, schema_version
from memory.types import Memory

CHAIN = (
    Migration("a table", ("CREATE TABLE thing (name TEXT)", "INSERT INTO thing VALUES ('kept')")),
    Migration("a column", ("ALTER TABLE thing ADD COLUMN size INTEGER", "UPDATE thing SET size = 1")),
    Migration("an index", ("CREATE INDEX thing_size ON thing (size)",)),
)


@pytest.fixture
def connection():
    opened = sqlite3.connect(":memory:", isolation_level=None)
    yield opened
    opened.close()


@pytest.mark.parametrize("start", range(4))
def test_every_old_version_reaches_the_newest(connection: sqlite3.Connection, start: int) -> None:
    assert migrate(connection, CHAIN[:start]) == list(range(1, start + 1))
    assert migrate(connection, CHAIN) == list(range(start + 1, 4))
    assert schema_version(connection) == 3
    assert connection.execute("SELECT name, size FROM thing").fetchall() == [("kept", 1)]
    assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall() == [
        ("thing_size",)
    ]
    assert migrate(connection, CHAIN) == []


def test_a_migration_that_fails_leaves_the_version_before_it(connection: sqlite3.Connection) -> None:
    broken = (CHAIN[0], Migration("wrong", ("ALTER TABLE thing ADD COLUMN size INTEGER", "SELECT nonsense")))
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        migrate(connection, broken)
    assert schema_version(connection) == 1
    assert [row[1] for row in connection.execute("PRAGMA table_info(thing)")] == ["name"]
    assert migrate(connection, CHAIN) == [2, 3]


def test_a_newer_file_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection, CHAIN)
    with pytest.raises(StoreVersionError, match="version 3, but this release reads up to 2"):
        migrate(connection, CHAIN[:2])


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    SqliteDatabase.open(tmp_path, dim=4).close()
    connection = sqlite3.connect(tmp_path / "memory.db")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    for readonly in (False, True):
        with pytest.raises(StoreVersionError, match="Update the library"):
            SqliteDatabase.open(tmp_path, readonly=readonly)


def test_a_writer_migrates_a_store_and_a_reader_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        database.add([Memory(time_ns=1, label="old", embedding=np.ones(4))])
    longer = (*MIGRATIONS, Migration("one more", ("CREATE TABLE extra (id INTEGER PRIMARY KEY)",)))
    monkeypatch.setattr(files, "MIGRATIONS", longer)
    monkeypatch.setattr(
        migrations, "migrate", lambda connection, name: migrate(connection, longer, name=name)
    )
    with pytest.raises(StoreVersionError, match="for writing"):
        SqliteDatabase.open(tmp_path, readonly=True)
    with SqliteDatabase.open(tmp_path) as database:
        assert database.get([1])[0].label == "old"
        assert database.check().ok
    with SqliteDatabase.open(tmp_path, readonly=True) as database:
        assert database.count() == 1


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "memory.db")
    connection.execute("CREATE TABLE memory (id INTEGER)")
    connection.close()
    before = (tmp_path / "memory.db").read_bytes()
    for readonly in (True, False):
        with pytest.raises(NotAStoreError, match="another program: its application id is 0x00000000"):
            SqliteDatabase.open(tmp_path, dim=4, readonly=readonly)
    assert (tmp_path / "memory.db").read_bytes() == before
