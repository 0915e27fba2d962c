"""Backups are complete stores of one moment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.errors import (
    NotAStoreError,
)
from memory.persistence.sqlite import upkeep
from memory.persistence.sqlite.database import SqliteDatabase
from memory.types import Memory

Rows = Callable[..., list[Memory]]


def test_a_backup_is_a_store_of_one_moment(
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_of: Rows
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


def test_a_backup_that_was_interrupted_is_no_store(
    database: SqliteDatabase, tmp_path: Path, rows_of: Rows
) -> None:
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
    database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_of: Rows
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
