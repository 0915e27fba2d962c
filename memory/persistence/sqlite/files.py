"""File of a store: created as a whole or not at all, and checked before use."""

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
    """Create the folder of a store, with its parents.

    Raises:
        NotAStoreError: a file is in the way.
        StoreReadOnlyError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAStoreError(f"{folder} is a file, but a store is a folder. Choose another path") from error
    except OSError as error:
        raise StoreReadOnlyError(f"cannot create {folder}: {error.strerror}") from error


def create_file(folder: Path, dim: int) -> None:
    """Write an empty store under another name, and move it into place once it is durable."""
    file = folder / FILE_NAME
    fresh = folder / f"{FILE_NAME}.new"
    for left in (fresh, Path(f"{fresh}-journal")):
        left.unlink(missing_ok=True)
    with sqlite_errors(fresh):
        connection = connect(fresh, "rwc")
        try:
            # The whole file is made durable at once, below: nobody needs it before.
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            migrate(connection, name=str(file))
            connection.execute("BEGIN")
            add_slot(connection, {}, DEFAULT_SLOT, dim)
            meta.write(connection, "created_ns", time.time_ns())
            connection.execute("COMMIT")
            complete(connection)
        finally:
            connection.close()
    sync(fresh)
    os.replace(fresh, file)
    sync(folder)
    sync(folder.parent)


def hold(file: Path) -> Identity:
    """Check the file and note that this process opens it; :func:`release` ends that.

    Raises:
        NotAStoreError, CorruptStoreError: see :func:`check_file`.
    """
    with _opening:
        identity = check_file(file)
        _open[identity] += 1
        return identity


def release(identity: Identity) -> None:
    """Note that the connections of a :func:`hold` are closed."""
    with _opening:
        _open[identity] -= 1
        if _open[identity] <= 0:
            del _open[identity]


def check_file(file: Path) -> Identity:
    """Check the first bytes and the length before SQLite does; return device and inode number.

    If this process already has the file open, only its metadata is checked. Closing any descriptor of a file
    releases all POSIX locks of the process on it, SQLite's included. The next process that closes the store
    would then remove the log while this one still writes to it.

    Raises:
        NotAStoreError: the file is missing or not a database.
        CorruptStoreError: it is truncated, or only its write-ahead log exists.
    """
    log = Path(f"{file}-wal")
    try:
        log_size = log.stat().st_size if log.exists() else 0
        there = file.is_file()
    except OSError as error:
        raise unreadable(file, error) from error
    if not there:
        if log_size:
            raise CorruptStoreError(f"{file} is missing, but its log {log.name} exists. Put the file back")
        if file.parent.is_file():
            raise NotAStoreError(
                f"{file.parent} is a file, but a store is a folder. Give the path of the folder"
            )
        raise NotAStoreError(
            f"{file.parent} holds no store, because {file.name} is missing. Check the path, or create a store"
            " with recall init"
        )
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
            raise CorruptStoreError(f"{file} is empty, because it was truncated. Restore a backup")
        raise NotAStoreError(
            f"{file} is not a SQLite database, or its first bytes are damaged. Restore a backup"
        )
    page = int.from_bytes(header[16:18], "big") if len(header) == 100 else 0
    page = 65536 if page == 1 else page
    expected = page * int.from_bytes(header[28:32], "big")
    # The file may be shorter while the log holds pages that were not copied yet.
    if len(header) < 100 or (size < expected and not log_size):
        raise CorruptStoreError(f"{file} is truncated: {size} bytes of {expected}. Restore a backup")
    return identity


def unreadable(file: Path, error: OSError) -> StoreError:
    """Return the error for a file that the system does not let this process read."""
    return StoreReadOnlyError(f"cannot read {file}: {error.strerror}. Check its permissions")


def is_same(file: str | Path, identity: Identity) -> bool:
    """Return True if a path still leads to the opened file; writes to another one would be lost."""
    try:
        status = os.stat(file)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == identity


def check_store(connection: sqlite3.Connection, file: Path) -> int:
    """Check that this release can read the database, and return its schema version.

    Raises:
        NotAStoreError: the database is of another program.
        StoreVersionError: it is newer than this release.
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
    """Raise unless the schema is this release's; only a writer may change it."""
    if version < len(MIGRATIONS):
        raise StoreVersionError(
            f"{file} has schema version {version}, but this release reads {len(MIGRATIONS)}."
            " Open it once for writing, which migrates it"
        )


def check_dim(connection: sqlite3.Connection, file: Path, dim: int | None) -> int:
    """Return the length of the store's vectors, or raise ``DimensionError``."""
    slots = read_slots(connection)
    if DEFAULT_SLOT not in slots:
        raise CorruptStoreError(
            f"{file} does not record the length of its vectors. Run recall check --repair"
        )
    stored = slots[DEFAULT_SLOT].dim
    if dim is not None and dim != stored:
        raise DimensionError(f"{file} holds vectors of {stored} numbers, but was opened with dim={dim}")
    return stored
