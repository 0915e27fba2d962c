"""Connections to a server: statements with question marks, a pool, errors in the library's own words."""

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

#: Connections of a process at most, and seconds to wait for one.
MOST_CONNECTIONS, WAIT_S = 32, 30.0
#: Seconds after which a pool is to begin anew with trying to connect: it waits twice as long each time, and a
#: server that is back after minutes would be waited for by minutes more.
AGAIN_S = 5.0
#: What connections have where an address says nothing else: a network that falls silent is noticed within a
#: minute. By default Linux waits for two hours.
ALIVE = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 50_000}


class _Number(Dumper):
    """An integer without a type of its own: it takes that of the column, as in SQLite."""

    def dump(self, value: int) -> bytes:
        """Its digits."""
        return str(int(value)).encode()


def configure(connection: psycopg.Connection) -> None:
    """What every connection of a pool has."""
    connection.adapters.register_dumper(int, _Number)
    connection.adapters.register_dumper(bool, _Number)


def options_of(address: str) -> dict[str, Any]:
    """What connections to an address are made with beside it."""
    said = conninfo.conninfo_to_dict(address)
    alive = {name: value for name, value in ALIVE.items() if name not in said}
    return {"autocommit": True, "application_name": "sparsight", **alive}


@lru_cache(4096)
def placeholders(sql: str) -> str:
    """With the placeholders of psycopg in place of question marks."""
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresConnection:
    """A connection in the words of :class:`memory.persistence.sql.Connection`.

    It takes one of the server's from the pool for a transaction and gives it back afterwards, so that a
    server that was started anew is no reason to open the store again.

    Args:
        pool: of the process.
        lock: number of the store's lock, which a transaction that writes takes; ``None`` for reading.
        guarded: whether row-level security holds for this user, who then cannot copy into tables.

    Attributes:
        guarded: as given.
        raw: the connection of psycopg, within a transaction.
        unsure: whether the last transaction ended with a commit whose answer was lost.
    """

    engine = PostgresEngine()

    def __init__(self, pool: ConnectionPool, lock: int | None, *, guarded: bool = False) -> None:
        self._pool = pool
        self.guarded = guarded
        self._lock = lock
        self.raw: psycopg.Connection | None = None
        self.unsure = False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.raw is not None

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor:
        """Run a statement; ``BEGIN``, ``COMMIT`` and ``ROLLBACK`` take and give back a connection."""
        if sql.startswith("BEGIN"):
            self._begin()
        elif sql in ("COMMIT", "ROLLBACK"):
            return self._end(sql)
        assert self.raw is not None
        if sql.startswith("BEGIN"):
            return self.raw.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (self._lock,))
        return self.raw.execute(placeholders(sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """Run a statement for each of the parameters."""
        assert self.raw is not None
        with self.raw.cursor() as cursor:
            cursor.executemany(placeholders(sql), parameters)

    def cancel(self) -> None:
        """End what it does just now, from another thread."""
        if self.raw is not None:
            self.raw.cancel()

    def _begin(self) -> None:
        self.unsure = False
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if self._lock is None else "BEGIN"
        for _ in range(MOST_CONNECTIONS + 1):
            raw = self._lent()
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
        # Each of the pool was of a server that went away, and so were the new ones.
        raise psycopg.OperationalError("the server ends connections as soon as they are made")

    def _lent(self) -> psycopg.Connection:
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
                return raw.cursor()  # Of a connection that is lost: the server rolls back itself.
            self.unsure = raw.closed
            raise
        finally:
            self._pool.putconn(raw)


class PostgresReaders:
    """Connections for reading, lent to one thread at a time."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._lent: set[PostgresConnection] = set()

    @contextmanager
    def borrow(self) -> Iterator[PostgresConnection]:
        """A connection within a read transaction: everything that is read is of one moment.

        Raises:
            QueryInterruptedError: it took longer than :mod:`memory.persistence.deadline` lets it.
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
        """End what the lent connections are reading just now."""
        for connection in list(self._lent):
            connection.cancel()


class postgres_errors:
    """Turn errors of the server into those of :mod:`memory.errors`, with the name of the store."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the error that stands for this one."""
        if isinstance(error, psycopg.Error | PoolTimeout | PoolClosed):
            raise translate(error, self._name) from error


def translate(error: Exception, name: str) -> Exception:
    """The error of this library that says what the server's means."""
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, errors.QueryCanceled):
        limit = current()
        return QueryInterruptedError("interrupted") if limit is None else limit.error()
    if isinstance(error, PoolClosed):
        return StoreClosedError(f"{name} was closed")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory | errors.ConfigurationLimitExceeded):
        return StoreFullError(f"{name}: no room left; nothing of this operation was kept ({said})")
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        return StoreReadOnlyError(f"{name}: this user may not do that ({said})")
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected | PoolTimeout):
        return StoreLockedError(f"{name} is in use by others, try again ({said})")
    if isinstance(error, errors.ProgramLimitExceeded):
        return ValueError(f"a text, payload or vector is longer than the server takes ({said})")
    return StoreError(f"{name}: ({type(error).__name__}: {said})")
