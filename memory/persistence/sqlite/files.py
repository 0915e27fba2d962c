"""The file of a store: made as a whole or not at all, and looked at before it is trusted."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

from memory.errors import (
    CorruptStoreError,
    DimensionError,
    NotAStoreError,
    StoreError,
    StoreReadOnlyError,
    StoreVersionError,
)
from memory.persistence import meta
from memory.persistence.rows import DEFAULT_SLOT
from memory.persistence.slots import add_slot, read_slots
from memory.persistence.sql import check_version
from memory.persistence.sqlite.connection import connect, sqlite_errors
from memory.persistence.sqlite.migrations import (
    APPLICATION_ID,
    MIGRATIONS,
    complete,
    migrate,
    schema_version,
)
from sparse_core.common.files import sync

FILE_NAME = "memory.db"
LOCK_NAME = "writer.lock"
MAGIC = b"SQLite format 3\0"

Identity = tuple[int, int]
_open: Counter[Identity] = Counter()
_opening = threading.Lock()


def make_folder(folder: Path) -> None:
    """The folder of a new store, with its parents.

    Raises:
        NotAStoreError: a file is in the way.
        StoreReadOnlyError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAStoreError(f"{folder} is a file: a store is a folder") from error
    except OSError as error:
        raise StoreReadOnlyError(f"{folder} cannot be made: {error.strerror}") from error


def create_file(folder: Path, dim: int) -> None:
    """Write an empty store under another name and move it into place once it is on the disk."""
    file = folder / FILE_NAME
    fresh = folder / f"{FILE_NAME}.new"
    for left in (fresh, Path(f"{fresh}-journal")):
        left.unlink(missing_ok=True)
    with sqlite_errors(fresh):
        connection = connect(fresh, "rwc")
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            migrate(connection, name=str(file))
            connection.execute("BEGIN")
            add_slot(connection, {}, DEFAULT_SLOT, dim)
            meta.write(connection, "created_ns", time.time_ns())
            connection.execute("COMMIT")
            complete(connection)
        finally:
            connection.close()
    os.replace(fresh, file)
    sync(folder)
    sync(folder.parent)


def hold(file: Path) -> Identity:
    """Check the file, and note that this process is about to open it; to be given to :func:`let_go`.

    Raises:
        NotAStoreError, CorruptStoreError: see :func:`check_file`.
    """
    with _opening:
        identity = check_file(file)
        _open[identity] += 1
        return identity


def let_go(identity: Identity) -> None:
    """The connections of a :func:`hold` are closed."""
    with _opening:
        _open[identity] -= 1
        if _open[identity] <= 0:
            del _open[identity]


def check_file(file: Path) -> Identity:
    """Look at the first bytes and the length, before SQLite does; device and number of the file.

    A file that this process has open as a store is only looked at from outside: closing any descriptor of
    a file lets go of all locks (POSIX) that the process has on it, SQLite's too, and the next process that
    closes the store would then remove the log that this one goes on writing to.

    Raises:
        NotAStoreError: no file, or no database.
        CorruptStoreError: cut off, or its write-ahead log is there without it.
    """
    log = Path(f"{file}-wal")
    try:
        log_size = log.stat().st_size if log.exists() else 0
        there = file.is_file()
    except OSError as error:
        raise unreadable(file, error) from error
    if not there:
        if log_size:
            raise CorruptStoreError(f"{file} is missing but its log {log.name} is there: put it back")
        raise NotAStoreError(f"{file.parent} holds no store: {file.name} is missing")
    status = file.stat()
    size, identity = status.st_size, (status.st_dev, status.st_ino)
    if _open[identity]:
        return identity
    try:
        with file.open("rb") as stream:
            header = stream.read(100)
    except OSError as error:
        raise unreadable(file, error) from error
    if header[:16] != MAGIC[: len(header)] or (not header and not size):
        if not size:
            raise CorruptStoreError(f"{file} is empty: it was cut off; restore a backup")
        raise NotAStoreError(f"{file} is no SQLite database, or its first bytes are damaged")
    page = int.from_bytes(header[16:18], "big") if len(header) == 100 else 0
    page = 65536 if page == 1 else page
    expected = page * int.from_bytes(header[28:32], "big")
    # While the log holds pages that were not copied yet, the file may rightly be shorter.
    if len(header) < 100 or (size < expected and not log_size):
        raise CorruptStoreError(f"{file} is cut off: {size} bytes of {expected}; restore a backup")
    return identity


def unreadable(file: Path, error: OSError) -> StoreError:
    """The error for a file that the system does not let this process read."""
    return StoreReadOnlyError(f"{file} cannot be read: {error.strerror}: check its rights")


def is_same(file: str | Path, identity: Identity) -> bool:
    """Whether a path still leads to the file that was opened: what is written to another is lost."""
    try:
        status = os.stat(file)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == identity


def check_store(connection: sqlite3.Connection, file: Path) -> int:
    """That the database is a store which this release can read; return its schema version.

    Raises:
        NotAStoreError: of another program.
        StoreVersionError: newer than this release.
    """
    found = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if found != APPLICATION_ID:
        raise NotAStoreError(
            f"{file} is a database of another program: its application id is {found:#010x},"
            f" a store's is {APPLICATION_ID:#010x}"
        )
    version = schema_version(connection)
    check_version(version, latest=len(MIGRATIONS), name=str(file))
    return version


def check_current(version: int, file: Path) -> None:
    """Raise unless the schema is this release's: only a writer may change it."""
    if version < len(MIGRATIONS):
        raise StoreVersionError(
            f"{file} has schema version {version}, this release reads {len(MIGRATIONS)}:"
            " open it once for writing, which migrates it"
        )


def check_dim(connection: sqlite3.Connection, file: Path, dim: int | None) -> int:
    """The length of the vectors of the store.

    Raises:
        DimensionError: another was asked for.
    """
    slots = read_slots(connection)
    if DEFAULT_SLOT not in slots:
        raise CorruptStoreError(f"{file} does not say how long its vectors are: run check(repair=True)")
    stored = slots[DEFAULT_SLOT].dim
    if dim is not None and dim != stored:
        raise DimensionError(f"{file} holds vectors of {stored} numbers, it was opened with dim={dim}")
    return stored
