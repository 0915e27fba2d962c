"""Repair: what is derived is built again; where rows are damaged, a new database of the sound ones."""

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
    """Make an open database one of its sound rows; what it was is kept beside it.

    Args:
        connection: the one that writes, without a transaction.
        file: the database.
        left: how far it came.

    Returns:
        What was brought back, and what was done.
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
        NotAStoreError: there is nothing of a store.
        StoreLockedError: another process writes.
    """
    file, log = folder / files.FILE_NAME, Path(f"{folder / files.FILE_NAME}-wal")
    if not file.is_file():
        raise NotAStoreError(f"{folder} holds no store: {file.name} is missing")
    lock = WriterLock(folder / files.LOCK_NAME)
    try:
        found = wal.read(log)
        fresh, salvaged = _salvaged_beside(file, file, found.pages, lock.left)
        # The damaged one keeps its bytes under another name before anything takes its place.
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
    """A new database beside the damaged one, synced.

    Raises:
        CorruptStoreError: nothing in the source is of a store.
    """
    fresh = file.with_name(f"{file.name}.new")
    for remains in (fresh, Path(f"{fresh}-journal")):
        remains.unlink(missing_ok=True)
    with closing(Pages(source, newer)) as pages, sqlite_errors(fresh):
        salvaged = salvage(pages, fresh, left)
    if not salvaged.found:
        fresh.unlink()
        raise CorruptStoreError(
            f"{file}: not one row of a store of this release can be read: restore a backup"
        )
    sync(fresh)
    return fresh, salvaged


def _actions(file: Path, aside: Path, salvaged: SalvageReport) -> list[str]:
    """What was done, after writing what is left of memories that are not whole."""
    done = [
        f"a new database was made of all rows that are as stored; the damaged one is kept as {aside.name}"
    ]
    if salvaged.repaired:
        done.append(f"one bit was turned back in each of {salvaged.repaired} rows")
    if salvaged.quarantine:
        kept = aside.with_name(f"{aside.name}.quarantine.jsonl")
        with replacing(kept) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in salvaged.quarantine), encoding="utf-8")
        done.append(f"what is left of {len(salvaged.quarantine)} memories is in {kept.name}")
    return done


def mend_settings(folder: Path, known: str | None) -> str:
    """Write the settings that the database has, or the usual ones, in the place of what cannot be read."""
    file = folder / CONFIG_NAME
    aside = keep_aside(file)
    os.replace(file, aside)
    config = StoreConfig() if known is None else StoreConfig.of_text(known)
    config.save(folder)
    return f"the settings are those of the database; what was in the folder is kept as {aside.name}"
