"""Erasing for privacy: no byte of what was removed stays in the files of the store."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from memory.errors import CorruptStoreError, EraseError
from memory.persistence import meta
from memory.persistence.sqlite import places, text_index
from memory.persistence.sqlite.connection import transaction

#: Name in ``meta`` of the note that something is to be erased.
NOTE = "scrub"


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
        meta.delete(connection, NOTE)
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
        places.rebuild(connection, places.read_placed(connection))
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


#: Said while an erasure is not finished.
WAITS = "memories were removed, but their old bytes are still in the files until they can be written anew"


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
    return meta.read(connection, NOTE) is not None
