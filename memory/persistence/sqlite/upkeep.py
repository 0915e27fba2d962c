"""Backups, and erasing for privacy: no byte of what was removed stays in the files of the store."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from memory.errors import CorruptStoreError, EraseError
from memory.persistence import meta
from memory.persistence.reports import Progress
from memory.persistence.sqlite import places, text_index
from memory.persistence.sqlite.connection import is_failed_write, transaction, translate
from memory.persistence.sqlite.files import FILE_NAME, make_folder
from sparse_core.common.files import replacing, sync

#: Pages that are copied between two reports of progress: 4 MiB.
STEP_PAGES = 1024
#: Said while an erasure is not finished.
WAITS = "memories were removed, but their old bytes are still in the files until they can be written anew"


def copy_store(
    source: sqlite3.Connection,
    folder: Path,
    progress: Progress | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Copy what a read transaction sees into a new store.

    The database is written under another name, and gets its own when it and everything beside it are on the
    disk: a folder with ``memory.db`` is a whole copy.

    Args:
        source: within a read transaction: the writer goes on meanwhile and does not disturb the copy.
        folder: of the copy, made where there is none; holds no store yet.
        progress: told how far it is.
        beside: contents of further files by name; those of the same name are replaced.

    Returns:
        The file, which is there only once all is complete and on the disk.

    Raises:
        FileExistsError: there is a store.
        StoreFullError: no room for the copy.
        StoreError: the copy cannot be written for another reason.
    """
    make_folder(folder)
    file = folder / FILE_NAME
    if file.exists() or Path(f"{file}-wal").exists():
        raise FileExistsError(f"{file} exists: a backup goes into a folder without a store")
    fresh = folder / f"{FILE_NAME}.new"
    # Of a copy that was interrupted: SQLite would play such a journal back into the new file.
    for left in (fresh, Path(f"{fresh}-journal")):
        left.unlink(missing_ok=True)
    source.execute("SELECT count(*) FROM meta").fetchone()  # The moment that is copied.

    def report(status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    target = sqlite3.connect(fresh)
    try:
        source.backup(target, pages=STEP_PAGES, progress=report)
    except BaseException as error:
        target.close()
        for left in (fresh, Path(f"{fresh}-journal")):
            left.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error) and is_failed_write(error):
            # Only the copy is written: callers would name the store that is copied.
            raise translate(error, file) from error
        raise
    target.close()
    sync(fresh)
    for name, content in (beside or {}).items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    # Before the database appears in it.
    sync(folder)
    os.replace(fresh, file)
    sync(folder)
    return file


def scrub(connection: sqlite3.Connection) -> None:
    """Write the whole database anew, without what was removed, and empty the write-ahead log.

    Deleted bytes survive in free pages, in the gaps of pages, in segments of the text index and in the log.
    The indexes over words and places are built anew, ``VACUUM`` copies the rows that are left into fresh
    pages (this needs room for a second copy of the database), and the log is copied and cut to nothing. What
    a file system or a flash disk keeps of blocks that it was given back is beyond a program's reach.

    Raises:
        EraseError: a reader kept the log from being cut, or there is no room; the request stays noted, and is
            carried out by the next call or when the store is next opened for writing.
    """
    try:
        _write_anew(connection)
    except sqlite3.OperationalError as error:
        raise EraseError(
            f"removed, but the database cannot be written anew, which needs room for a second copy ({error}):"
            " old bytes stay in the files until it is; make room and call scrub(), or open the store again"
        ) from error
    busy = checkpoint(connection)
    if not busy:
        meta.delete(connection, meta.ERASURE)
        # The note that it is done is in the log now, and nothing else.
        busy = checkpoint(connection)
    if busy:
        raise EraseError(
            "removed, but a reader still holds the write-ahead log with the old bytes: let readers finish and"
            " call scrub()"
        )


def _write_anew(connection: sqlite3.Connection) -> None:
    """All that is left into fresh pages."""
    with transaction(connection):
        text_index.rebuild(connection)
        places.rebuild(connection, meta.read_number(connection, meta.PLACED))
    connection.execute("VACUUM")


def scrub_now(connection: sqlite3.Connection) -> str | None:
    """Finish an erasure that was interrupted, if that can be done at once; otherwise say why not.

    A store can be opened whatever is in the way: no room for a second copy, or a reader.
    """
    if not is_pending(connection):
        return None
    try:
        with _without_waiting(connection):
            scrub(connection)
    except (EraseError, sqlite3.Error, CorruptStoreError) as error:
        return f"{WAITS}: {error}"
    return None


@contextlib.contextmanager
def _without_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Locks of others are errors at once."""
    (waits_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {waits_ms}")


def checkpoint(connection: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the database and cut it to nothing; whether a reader forbade it."""
    return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])


def tidy(connection: sqlite3.Connection) -> bool:
    """The same without waiting for readers, whom it leaves alone: they keep the log that they read from.

    Nor is anything else an error here, a full disk as little: the log is copied another time.
    """
    with contextlib.suppress(sqlite3.Error), _without_waiting(connection):
        return checkpoint(connection)
    return True


def is_pending(connection: sqlite3.Connection) -> bool:
    """Whether an erasure was interrupted."""
    return meta.read(connection, meta.ERASURE) is not None
