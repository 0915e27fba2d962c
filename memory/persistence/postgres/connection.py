"""Connections to a server: question marks for parameters, a pool, and translated errors."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import conninfo, errors
from psycopg.adapt import Dumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from memory.errors import (
    QueryInterruptedError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from memory.persistence.deadline import check_deadline, current
from memory.persistence.postgres.engine import PostgresEngine

#: Most connections per process, and seconds to wait for one.
MOST_CONNECTIONS, WAIT_S = 32, 30.0
#: Seconds after which a pool restarts its connection attempts. Its waits double each time, so it would notice
#: a server that was away for minutes only minutes later.
AGAIN_S = 5.0
#: Default connection options, which detect a silent network within a minute; Linux waits for two hours by
#: default.
ALIVE = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 50_000}


class _Number(Dumper):
    """Integer without a type of its own: it takes that of the column, as in SQLite."""

    def dump(self, value: int) -> bytes:
        """Return the digits."""
        return str(int(value)).encode()


def configure(connection: psycopg.Connection) -> None:
    """Configure a connection of a pool."""
    connection.adapters.register_dumper(int, _Number)
    connection.adapters.register_dumper(bool, _Number)


def options_of(address: str) -> dict[str, Any]:
    """Return the options for connections to an address."""
    given = conninfo.conninfo_to_dict(address)
    alive = {name: value for name, value in ALIVE.items() if name not in given}
    return {"autocommit": True, "application_name": "sparsight", **alive}


@lru_cache(4096)
def placeholders(sql: str) -> str:
    """Replace question marks by psycopg's placeholders."""
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresConnection:
    """Connection with the interface of :class:`memory.persistence.sql.Connection`.

    It takes a server connection from the pool for each transaction, so that a restarted server does not
    require opening the store again.

    Args:
        lock: number of the store's lock, which writing transactions take; ``None`` for reading.
        guarded: True if row-level security applies to this user, who cannot copy into tables then.

    Attributes:
        raw: psycopg connection, within a transaction.
        commit_is_uncertain: True if the answer to the last commit was lost.
    """

    engine = PostgresEngine()

    def __init__(self, pool: ConnectionPool, lock: int | None, *, guarded: bool = False) -> None:
        self._pool = pool
        self.guarded = guarded
        self._lock = lock
        self.raw: psycopg.Connection | None = None
        self.commit_is_uncertain = False

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        return self.raw is not None

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor:
        """Run a statement; ``BEGIN`` takes a connection, ``COMMIT`` and ``ROLLBACK`` return it."""
        if sql.startswith("BEGIN"):
            self._begin()
        elif sql in ("COMMIT", "ROLLBACK"):
            return self._end(sql)
        assert self.raw is not None
        if sql.startswith("BEGIN"):
            return self.raw.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (self._lock,))
        return self.raw.execute(placeholders(sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once per parameter sequence."""
        assert self.raw is not None
        with self.raw.cursor() as cursor:
            cursor.executemany(placeholders(sql), parameters)

    def cancel(self) -> None:
        """Cancel the running statement, from another thread."""
        if self.raw is not None:
            self.raw.cancel()

    def _begin(self) -> None:
        self.commit_is_uncertain = False
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if self._lock is None else "BEGIN"
        for _ in range(MOST_CONNECTIONS + 1):
            raw = self._take_connection()
            try:
                raw.execute(begin)
            except BaseException as error:
                lost = raw.closed and isinstance(error, psycopg.OperationalError)
                self._pool.putconn(raw)
                if not lost:
                    raise
            else:
                self.raw = raw
                return
        # All pooled connections were of a server that went away, and so were the new ones.
        raise psycopg.OperationalError("the server ends connections as soon as they are made")

    def _take_connection(self) -> psycopg.Connection:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                return self._pool.getconn(AGAIN_S)
            except PoolTimeout:
                if time.monotonic() > end:
                    raise

    def _end(self, sql: str) -> psycopg.Cursor:
        raw, self.raw = self.raw, None
        assert raw is not None
        try:
            return raw.execute(sql)
        except psycopg.OperationalError:
            if sql == "ROLLBACK":
                return raw.cursor()  # The connection is lost, so the server rolls back by itself.
            self.commit_is_uncertain = raw.closed
            raise
        finally:
            self._pool.putconn(raw)


class PostgresReaders:
    """Reading connections, each lent to one thread at a time."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._lent: set[PostgresConnection] = set()

    @contextmanager
    def borrow(self) -> Iterator[PostgresConnection]:
        """Borrow a connection within a read transaction, so that all reads see one moment.

        Raises:
            QueryInterruptedError: the time limit of :mod:`memory.persistence.deadline` is over.
        """
        check_deadline()
        connection = PostgresConnection(self._pool, None)
        connection._begin()
        self._lent.add(connection)
        try:
            limit = current()
            left_s = None if limit is None else limit.left_s
            if left_s is not None:
                milliseconds = max(1, round(1000 * left_s))
                connection.execute(f"SET LOCAL statement_timeout = {milliseconds}")
            yield connection
        finally:
            self._lent.discard(connection)
            connection.execute("ROLLBACK")

    def interrupt(self) -> None:
        """Cancel the reads of all lent connections."""
        for connection in list(self._lent):
            connection.cancel()


class postgres_errors:
    """Turn errors of the server into those of :mod:`memory.errors`, with the name of the store."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the translated error."""
        if isinstance(error, psycopg.Error | PoolTimeout | PoolClosed):
            raise translate(error, self._name) from error


def translate(error: Exception, name: str) -> Exception:
    """Return this library's error for one of the server's."""
    detail = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, errors.QueryCanceled):
        limit = current()
        return QueryInterruptedError("interrupted") if limit is None else limit.error()
    if isinstance(error, PoolClosed):
        return StoreClosedError(f"{name} was closed. Open it again")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory | errors.ConfigurationLimitExceeded):
        return StoreFullError(
            f"{name}: no room left; nothing of this operation was kept. Free space ({detail})"
        )
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return StoreReadOnlyError(f"{name}: this user lacks the right to do that. Ask its owner ({detail})")
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected | PoolTimeout):
        return StoreLockedError(f"{name} is in use by others. Try again ({detail})")
    if isinstance(error, errors.ProgramLimitExceeded):
        return ValueError(f"a text, payload or vector exceeds the server's limit ({detail})")
    return StoreError(f"{name}: ({type(error).__name__}: {detail})")
