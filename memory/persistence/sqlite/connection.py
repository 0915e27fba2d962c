"""Connections to ``memory.db``: settings, a pool of readers, and translated errors."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Literal

from memory.errors import (
    CorruptStoreError,
    NotAStoreError,
    QueryInterruptedError,
    RecallError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from memory.persistence.deadline import INSTRUCTIONS, check_deadline, current
from memory.persistence.sqlite.engine import SqliteEngine

Mode = Literal["rwc", "rw", "ro", "immutable"]

#: Seconds that SQLite waits for a lock of another connection.
BUSY_TIMEOUT_S = 10.0
#: Errors of code that reads damaged rows; arguments are checked before.
UNREADABLE = (IndexError, KeyError, struct.error, UnicodeDecodeError, json.JSONDecodeError)
#: Messages of SQLite and Python about damage that have no error code.
DAMAGE = ("malformed", "Could not decode", "no such table", "no such column", "vtable constructor")
#: Pages of the write-ahead log after which SQLite copies them into the database: 16 MiB.
CHECKPOINT_PAGES = 4096


class SqliteConnection(sqlite3.Connection):
    """A connection that knows its engine.

    Attributes:
        generation: last operation that the transaction of a reader sees; ``None`` until it is read.
    """

    __slots__ = ("generation",)
    generation: int | None
    engine = SqliteEngine()


def connect(file: Path, mode: Mode) -> SqliteConnection:
    """Open a connection in autocommit mode with this library's settings.

    Args:
        mode: ``"rwc"`` creates, ``"rw"`` writes, ``"ro"`` reads, ``"immutable"`` reads a read-only medium,
            where no lock file can be created.
    """
    how = "ro&immutable=1" if mode == "immutable" else mode
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={how}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=SqliteConnection,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -65536")
    return connection


def connect_writer(file: Path) -> SqliteConnection:
    """Open the writing connection: write-ahead log, and a commit returns once it is durable."""
    connection = connect(file, "rw")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        connection.close()
        raise StoreError(
            f"{file} cannot use a write-ahead log (journal mode {mode!r}). Use a local file system"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    return connection


def connect_reader(file: Path) -> SqliteConnection:
    """Open a connection that never changes the database, also in a read-only folder."""
    if os.access(file.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        mode: Mode = "rw"  # Only for the log's index, because query_only forbids writes.
    elif Path(f"{file}-wal").exists():
        mode = "ro"
    else:
        mode = "immutable"
    connection = connect(file, mode)
    # A view of the text index that belongs to the connection; nothing is written to the file.
    connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'words', 'row')")
    connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the work within, or roll it back; for a single writer."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class SqliteReaders:
    """Pool of reading connections, one per thread that reads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._idle: list[SqliteConnection] = []
        self._lent: set[SqliteConnection] = set()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def borrow(self) -> Iterator[SqliteConnection]:
        """Borrow a connection within a read transaction, so that all reads see one moment.

        Raises:
            QueryInterruptedError: the time limit of :mod:`memory.persistence.deadline` is over.
        """
        with sqlite_errors(self._file):
            check_deadline()
            connection = self.take()
            try:
                limit = current()
                if limit is not None:
                    connection.set_progress_handler(limit.is_over, INSTRUCTIONS)
                connection.execute("BEGIN")
                yield connection
            finally:
                self.give_back(connection)

    def take(self) -> SqliteConnection:
        """Return a connection outside a transaction; the caller returns it by :meth:`give_back`."""
        with self._lock:
            if self._closed:
                raise StoreClosedError(f"{self._file.parent} was closed. Open it again")
            connection = self._idle.pop() if self._idle else None
        connection = connection or connect_reader(self._file)
        connection.generation = None
        with self._lock:
            self._lent.add(connection)
        return connection

    def give_back(self, connection: SqliteConnection) -> None:
        """End the transaction of a connection and keep it for the next reader."""
        connection.set_progress_handler(None, 0)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._lock:
            self._lent.discard(connection)
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def interrupt(self) -> None:
        """Interrupt the reads of all lent connections."""
        with self._lock:
            for connection in self._lent:
                connection.interrupt()

    def close(self) -> None:
        """Close idle connections now, and lent ones when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class sqlite_errors:  # Used like a function; a class is faster than a generator.
    """Turn SQLite's errors into those of :mod:`memory.errors`, with the file's name."""

    __slots__ = ("_file",)

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the translated error."""
        if isinstance(error, sqlite3.Error):
            raise translate(error, self._file) from error
        if isinstance(error, UNREADABLE) and not isinstance(error, RecallError):
            raise CorruptStoreError(
                f"{self._file} is damaged ({type(error).__name__}: {error}). Run recall check --repair"
            ) from error


class _Code(IntEnum):
    """SQLite's result codes (sqlite.org/rescode.html)."""

    PERM = 3
    BUSY = 5
    LOCKED = 6
    READONLY = 8
    INTERRUPT = 9
    CORRUPT = 11
    FULL = 13
    CANTOPEN = 14
    TOOBIG = 18
    NOTADB = 26


#: Extended code of a write that the system refuses.
_IOERR_WRITE = 10 | 3 << 8
# Codes by message, because errors have no code before Python 3.11.
_CODES_BY_MESSAGE = {
    "access permission denied": _Code.PERM,
    "database is locked": _Code.BUSY,
    "database table is locked": _Code.LOCKED,
    "attempt to write a readonly database": _Code.READONLY,
    "interrupted": _Code.INTERRUPT,
    "database disk image is malformed": _Code.CORRUPT,
    "database or disk is full": _Code.FULL,
    "unable to open database file": _Code.CANTOPEN,
    "string or blob too big": _Code.TOOBIG,
    "file is not a database": _Code.NOTADB,
}


def is_failed_write(error: sqlite3.Error) -> bool:
    """True if SQLite could not write a file: no room, or the disk or the system refuses."""
    code = _code(error)
    return code is not None and (code & 0xFF == _Code.FULL or code == _IOERR_WRITE)


def _code(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        code = next((known for words, known in _CODES_BY_MESSAGE.items() if words in str(error)), None)
    return code


def translate(error: sqlite3.Error, file: Path) -> Exception:
    """Return this library's error for one of SQLite's."""
    code = _code(error)
    # The upper bits of an extended code name the operation.
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary = None if code is None else code & 0xFF
    detail = f"({name}: {error})"
    if primary == _Code.INTERRUPT:
        limit = current()
        return QueryInterruptedError("interrupted") if limit is None else limit.error()
    if primary == _Code.FULL:
        return StoreFullError(
            f"{file}: no room left; nothing of this operation was kept. Free space, then repeat it {detail}"
        )
    if primary == _Code.CORRUPT or (
        isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in DAMAGE)
    ):
        return CorruptStoreError(f"{file} is damaged {detail}. Run recall check --repair or restore a backup")
    if primary == _Code.NOTADB:
        return NotAStoreError(f"{file} is not a SQLite database, or its first bytes are damaged {detail}")
    if primary in (_Code.BUSY, _Code.LOCKED):
        return StoreLockedError(f"{file} is in use by another connection. Try again {detail}")
    if primary in (_Code.READONLY, _Code.PERM, _Code.CANTOPEN):
        return StoreReadOnlyError(
            f"{file} cannot be opened or written. Check the permissions of its folder {detail}"
        )
    if primary == _Code.TOOBIG:
        return ValueError(f"a text, payload or vector exceeds SQLite's limit of a billion bytes {detail}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosedError(f"{file.parent} was closed. Open it again")
    return StoreError(f"{file}: {detail}")
