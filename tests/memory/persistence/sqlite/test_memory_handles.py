"""Several handles of one process on one store: closing one takes nothing from the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memory.errors import NotAStoreError, StoreLockedError
from memory.persistence.sqlite import files
from memory.persistence.sqlite.database import SqliteDatabase
from memory.types import Memory

#: The last to close a database copies its log and removes it.
COUNT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/memory.db")
print(connection.execute("SELECT count(*) FROM memory").fetchone()[0])
connection.close()
"""


def seen_by_another_process(folder: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(folder)], capture_output=True, text=True, check=True, timeout=600
    )
    return int(done.stdout)


def failing(folder: Path) -> None:
    with pytest.raises(StoreLockedError):
        SqliteDatabase.open(folder)


@pytest.mark.parametrize(
    "visit",
    [
        lambda folder: SqliteDatabase.open(folder, readonly=True).close(),
        failing,
        lambda folder: files.check_file(folder / files.FILE_NAME),
    ],
    ids=["reader", "second writer", "check"],
)
def test_the_log_of_a_writer_outlives_other_handles(tmp_path: Path, visit: object) -> None:
    """Had SQLite lost a lock, the other process would remove the log, and what is written next with it."""
    assert callable(visit)
    with SqliteDatabase.open(tmp_path / "s", dim=3) as database:
        database.add([Memory(time_ns=1)])
        visit(tmp_path / "s")
        assert seen_by_another_process(tmp_path / "s") == 1
        assert (tmp_path / "s" / "memory.db-wal").exists()
        database.add([Memory(time_ns=2)])
        assert seen_by_another_process(tmp_path / "s") == 2
    assert seen_by_another_process(tmp_path / "s") == 2


def test_a_file_is_looked_at_again_once_all_handles_are_closed(tmp_path: Path) -> None:
    SqliteDatabase.open(tmp_path / "s", dim=3).close()
    reader = SqliteDatabase.open(tmp_path / "s", readonly=True)
    other = SqliteDatabase.open(tmp_path / "s", readonly=True)
    reader.close()
    reader.close()
    other.close()
    assert not files._open
    (tmp_path / "s" / "memory.db").write_bytes(b"x" * 5000)
    with pytest.raises(NotAStoreError, match="not a SQLite database"):
        SqliteDatabase.open(tmp_path / "s")
    assert not files._open
