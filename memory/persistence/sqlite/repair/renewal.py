"""Repair of a database with damaged rows: a new database of the intact rows."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from memory.config import FILE_NAME as CONFIG_NAME
from memory.config import StoreConfig
from memory.errors import CorruptStoreError, NotAStoreError
from memory.persistence.reports import CheckReport
from memory.persistence.sqlite import files
from memory.persistence.sqlite.connection import connect, sqlite_errors
from memory.persistence.sqlite.lock import Acknowledgement, WriterLock
from memory.persistence.sqlite.repair import wal
from memory.persistence.sqlite.repair.losses import keep_aside
from memory.persistence.sqlite.repair.pages import Pages
from memory.persistence.sqlite.repair.salvage import SalvageReport, salvage
from sparse_core.common.files import replacing, sync


def renew(
    connection: sqlite3.Connection, file: Path, left: Acknowledgement
) -> tuple[SalvageReport, list[str]]:
    """Replace the content of an open database by its intact rows; keep the damaged file beside it.

    Args:
        left: acknowledged progress.

    Returns:
        What was salvaged, and the actions.
    """
    aside = keep_aside(file)
    with closing(sqlite3.connect(aside)) as witness:
        connection.backup(witness)
    sync(aside)
    fresh = _salvaged_beside(file, aside, {}, left)
    with closing(connect(fresh[0], "ro")) as source:
        source.backup(connection)
    fresh[0].unlink()
    return fresh[1], _actions(file, aside, fresh[1])


def repair_files(folder: Path) -> CheckReport:
    """Repair a store that cannot be opened; nobody may have it open.

    Raises:
        NotAStoreError: there is no store.
        StoreLockedError: another process writes.
    """
    file, log = folder / files.FILE_NAME, Path(f"{folder / files.FILE_NAME}-wal")
    if not file.is_file():
        raise NotAStoreError(f"{folder} holds no store, because {file.name} is missing. Check the path")
    lock = WriterLock(folder / files.LOCK_NAME)
    try:
        found = wal.read(log)
        fresh, salvaged = _salvaged_beside(file, file, found.pages, lock.last_acknowledgement)
        # Keep the damaged file under another name before anything replaces it.
        aside = keep_aside(file)
        os.link(file, aside)
        for part in ("-wal", "-shm"):
            if Path(f"{file}{part}").exists():
                os.replace(f"{file}{part}", f"{aside}{part}")
        sync(folder)
        os.replace(fresh, file)
        sync(folder)
        return CheckReport(
            salvaged.memories, (), tuple(_actions(file, aside, salvaged)), tuple(salvaged.lost)
        )
    finally:
        lock.release()


def _salvaged_beside(
    file: Path, source: Path, newer: dict[int, bytes], left: Acknowledgement | None
) -> tuple[Path, SalvageReport]:
    """Write a new synced database beside the damaged one.

    Raises:
        CorruptStoreError: the source has no readable row of a store.
    """
    fresh = file.with_name(f"{file.name}.new")
    for remains in (fresh, Path(f"{fresh}-journal")):
        remains.unlink(missing_ok=True)
    with closing(Pages(source, newer)) as pages, sqlite_errors(fresh):
        salvaged = salvage(pages, fresh, left)
    if not salvaged.found:
        fresh.unlink()
        raise CorruptStoreError(f"{file}: not a single row is readable by this release. Restore a backup")
    sync(fresh)
    return fresh, salvaged


def _actions(file: Path, aside: Path, salvaged: SalvageReport) -> list[str]:
    """Write the remains of incomplete memories, and return the actions."""
    done = [f"a new database was made of all intact rows; the damaged one is kept as {aside.name}"]
    if salvaged.repaired:
        done.append(f"one flipped bit was corrected in each of {salvaged.repaired} rows")
    if salvaged.quarantine:
        kept = aside.with_name(f"{aside.name}.quarantine.jsonl")
        with replacing(kept) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in salvaged.quarantine), encoding="utf-8")
        done.append(f"the remains of {len(salvaged.quarantine)} memories are in {kept.name}")
    return done


def mend_settings(folder: Path, known: str | None) -> str:
    """Replace an unreadable settings file by the database's settings, or by the defaults."""
    file = folder / CONFIG_NAME
    aside = keep_aside(file)
    os.replace(file, aside)
    config = StoreConfig() if known is None else StoreConfig.of_text(known)
    config.save(folder)
    return f"the settings are those of the database; what was in the folder is kept as {aside.name}"
