"""Acknowledged operations that are missing from the file: report them, and do not reuse their ids."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from memory.persistence import meta
from memory.persistence.log.journal import Counters, write_entry
from memory.persistence.sqlite.connection import transaction
from memory.persistence.sqlite.lock import Acknowledgement
from memory.persistence.sqlite.repair import wal
from sparse_core.common.files import sync

#: Name of the log entry about it.
OPERATION = "lost"


def keep_aside(file: Path) -> Path:
    """Return a free name for a copy of a file."""
    number = 1
    while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
        number += 1
    return aside


def keep_damaged_log(file: Path) -> Path | None:
    """Copy a write-ahead log that is damaged before its end, because SQLite drops what follows the damage."""
    log = Path(f"{file}-wal")
    if not log.exists() or not wal.read(log).damaged:
        return None
    aside = keep_aside(log)
    shutil.copyfile(log, aside)
    sync(aside)
    return aside


def note_lost(
    connection: sqlite3.Connection, counters: Counters, left: Acknowledgement | None, kept: Path | None
) -> str | None:
    """Log lost operations, if any, and return a sentence about them.

    Args:
        left: progress acknowledged by the last writer. If that closed the store and the file is older now, a
            copy was restored, which is not a loss.
        kept: copy of a damaged log.
    """
    known = left is not None and not left.closed and left.store == meta.read(connection, meta.STORE)
    last = left.generation if left is not None and known else counters.generation
    if last <= counters.generation and kept is None:
        return None
    first = counters.generation + 1
    which = f"operations {first} to {last}" if last >= first else f"operations after {counters.generation}"
    cause = "an older copy was restored, or the write-ahead log was lost"
    if kept is not None:
        cause = f"the write-ahead log was damaged, and is kept as {kept.name}"
    sentence = f"{which} were acknowledged, but are missing from the file: {cause}"
    with transaction(connection):
        if left is not None and known:
            counters.next_id = max(counters.next_id, left.next_id)
        write_entry(connection, counters, OPERATION, {"reason": sentence})
        meta.write(connection, meta.LOSS, sentence)
    return sentence
