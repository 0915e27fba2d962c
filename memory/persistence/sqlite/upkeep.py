"""Backup, and erasure for privacy: no byte of removed memories stays in the files."""

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

#: Pages copied between two reports of progress: 4 MiB.
STEP_PAGES = 1024
#: Remark while an erasure is unfinished.
WAITS = "memories were removed, but their old bytes stay in the files until the database is rewritten"


def copy_store(
    source: sqlite3.Connection,
    folder: Path,
    progress: Progress | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Copy what a read transaction sees into a new store.

    The database is written under another name, and renamed once it and all files beside it are durable. A
    folder with ``memory.db`` is therefore a complete copy.

    Args:
        source: connection within a read transaction; the writer may continue and does not disturb the copy.
        folder: folder of the copy, created if needed; it must not hold a store.
        progress: called with the pages copied and their total.
        beside: contents of further files by name; existing ones are replaced.

    Returns:
        The file of the copy.

    Raises:
        FileExistsError: the folder holds a store.
        StoreFullError: there is no space for the copy.
        StoreError: the copy cannot be written for another reason.
    """
    make_folder(folder)
    file = folder / FILE_NAME
    if file.exists() or Path(f"{file}-wal").exists():
        raise FileExistsError(f"{file} exists. Choose a backup folder without a store")
    fresh = folder / f"{FILE_NAME}.new"
    # Remove leftovers of an interrupted copy: SQLite would apply such a journal to the new file.
    for left in (fresh, Path(f"{fresh}-journal")):
        left.unlink(missing_ok=True)
    source.execute("SELECT count(*) FROM meta").fetchone()  # Fixes the moment that is copied.

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
            # Name the copy, because callers would name the source.
            raise translate(error, file) from error
        raise
    target.close()
    sync(fresh)
    for name, content in (beside or {}).items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    # Sync the other files before the database appears.
    sync(folder)
    os.replace(fresh, file)
    sync(folder)
    return file


def scrub(connection: sqlite3.Connection) -> None:
    """Rewrite the whole database without removed rows, and empty the write-ahead log.

    Deleted bytes survive in free pages, gaps of pages, segments of the text index, and the log. So the
    indexes over words and places are rebuilt, ``VACUUM`` copies the remaining rows into new pages (which
    needs space for a second copy), and the log is copied and truncated. Blocks that a file system or flash
    disk keeps are out of reach.

    Raises:
        EraseError: a reader prevented the truncation, or there is no space. The request stays recorded, and
            the next call or opening for writing carries it out.
    """
    try:
        _rewrite(connection)
    except sqlite3.OperationalError as error:
        raise EraseError(
            "memories were removed, but their old bytes stay in the files: rewriting the database needs"
            f" space for a second copy ({error}). Free space, then call scrub() or open the store again"
        ) from error
    busy = checkpoint(connection)
    if not busy:
        meta.delete(connection, meta.ERASURE)
        # The log now holds only the note that the erasure is done.
        busy = checkpoint(connection)
    if busy:
        raise EraseError(
            "memories were removed, but a reader still holds the write-ahead log with their old bytes."
            " Let readers finish, then call scrub()"
        )


def _rewrite(connection: sqlite3.Connection) -> None:
    """Rebuild the indexes, and copy the remaining rows into new pages."""
    with transaction(connection):
        text_index.rebuild(connection)
        places.rebuild(connection, meta.read_number(connection, meta.PLACED))
    connection.execute("VACUUM")


def scrub_now(connection: sqlite3.Connection) -> str | None:
    """Finish an interrupted erasure if possible without waiting; otherwise return the reason.

    The store can be opened without space for a second copy, or while a reader is in the way.
    """
    if not has_pending_erasure(connection):
        return None
    try:
        with _without_waiting(connection):
            scrub(connection)
    except (EraseError, sqlite3.Error, CorruptStoreError) as error:
        return f"{WAITS}: {error}"
    return None


@contextlib.contextmanager
def _without_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Treat locks of others as errors at once."""
    (waits_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {waits_ms}")


def checkpoint(connection: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the database and truncate it; return True if a reader prevented it."""
    return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])


def tidy(connection: sqlite3.Connection) -> bool:
    """Truncate the log like :func:`checkpoint`, without waiting for readers; they keep their log.

    Other errors, such as a full disk, are ignored too, because the log can be copied later.
    """
    with contextlib.suppress(sqlite3.Error), _without_waiting(connection):
        return checkpoint(connection)
    return True


def has_pending_erasure(connection: sqlite3.Connection) -> bool:
    """Return True if an erasure was interrupted."""
    return meta.read(connection, meta.ERASURE) is not None
