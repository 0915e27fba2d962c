"""What SQLite says becomes the library's error, with a code or, as before Python 3.11, without."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from memory.errors import (
    CorruptStoreError,
    NotAStoreError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from memory.persistence.sqlite.connection import translate


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("database or disk is full", StoreFullError),
        ("database disk image is malformed", CorruptStoreError),
        ("file is not a database", NotAStoreError),
        ("database is locked", StoreLockedError),
        ("database table is locked: memories", StoreLockedError),
        ("attempt to write a readonly database", StoreReadOnlyError),
        ("unable to open database file", StoreReadOnlyError),
        ("string or blob too big", ValueError),
        ("disk I/O error", StoreError),
    ],
)
def test_an_error_without_a_code(said: str, expected: type[Exception]) -> None:
    assert type(translate(sqlite3.OperationalError(said), Path("store/memory.db"))) is expected


def test_a_closed_connection_is_no_damage() -> None:
    error = sqlite3.ProgrammingError("Cannot operate on a closed database.")
    assert type(translate(error, Path("store/memory.db"))) is StoreClosedError


def test_real_errors(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"no database at all, but long enough to be one" * 50)
    with pytest.raises(sqlite3.Error) as raised:
        sqlite3.connect(tmp_path / "other").execute("select * from sqlite_master")
    assert type(translate(raised.value, tmp_path / "other")) is NotAStoreError
    with pytest.raises(sqlite3.Error) as raised:
        sqlite3.connect(tmp_path / "none" / "memory.db")
    assert type(translate(raised.value, tmp_path / "none/memory.db")) is StoreReadOnlyError
