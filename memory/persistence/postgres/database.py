"""Database of a store on a server."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg_pool import ConnectionPool

from memory.errors import (
    DimensionError,
    NotAStoreError,
    StoreError,
    StoreReadOnlyError,
    StoreVersionError,
)
from memory.persistence import meta
from memory.persistence.log.journal import Counters
from memory.persistence.log.writer import Writer
from memory.persistence.postgres import checks, nearest, schema, search
from memory.persistence.postgres.address import without_password
from memory.persistence.postgres.connection import (
    AGAIN_S,
    MOST_CONNECTIONS,
    WAIT_S,
    PostgresConnection,
    PostgresReaders,
    configure,
    options_of,
    postgres_errors,
)
from memory.persistence.postgres.upkeep import Upkeep
from memory.persistence.reports import CheckReport
from memory.persistence.rows import DEFAULT_SLOT
from memory.persistence.slots import add_slot, read_slots
from memory.persistence.sql import check_version
from memory.query import Filter
from memory.types import check_integer


class PostgresWriter(Writer):
    """Writer under the store's lock, for which the writers of all processes queue.

    Args:
        connection: connection that takes the lock with each transaction.
        counters: counters, read with each transaction, because others write too.
    """

    connection: PostgresConnection

    def begin(self) -> None:
        """Read what others wrote, then write the pending observations."""
        self.counters.read(self.connection)
        super().begin()

    def after_rollback(self) -> None:
        """Let the observations wait again; the next transaction reads the counters."""
        self.pending.after_rollback()

    @property
    def commit_is_uncertain(self) -> bool:
        """True if the server went away during the commit."""
        return self.connection.commit_is_uncertain


#: Lock for creating tables: "RCLL" in ASCII, as in the files of stores.
_MAKING = 0x52434C4C


class PostgresDatabase(Upkeep):
    """Tables of a store in the first schema of the connection's ``search_path``.

    Any number of processes write; their operations run one after another, and each is durable when it
    returns.

    Attributes:
        address: address of the store, without the password.
        folder: this computer's caches of the store.
        dim: length of the default vectors.
        readonly: True if it was opened for reading only.
        guarded: True if row-level security applies to this user, who is not the owner.
    """

    shared = True
    _writer: PostgresWriter | None

    def __init__(self, address: str, *, dim: int | None, readonly: bool, create: bool) -> None:
        """Open the store; use :meth:`open`."""
        self._address = address
        self.address = without_password(address)
        self.readonly = readonly
        self.remarks = []
        self._pid = os.getpid()
        self._counters = Counters()
        with postgres_errors(self.address):
            # Connect once without the pool, which would retry without reporting the error.
            psycopg.connect(address, connect_timeout=10).close()
            self._pool = ConnectionPool(
                address,
                min_size=1,
                max_size=MOST_CONNECTIONS,
                timeout=WAIT_S,
                reconnect_timeout=AGAIN_S,
                open=True,
                configure=configure,
                kwargs=options_of(address),
            )
            try:
                lock, self.guarded = self._prepare(dim, create)
            except BaseException:
                self._pool.close()
                raise
        self._readers = PostgresReaders(self._pool)
        writing = PostgresConnection(self._pool, lock, guarded=self.guarded)
        self._writer = None if readonly else PostgresWriter(writing, self._counters)

    @classmethod
    def open(
        cls, address: str, *, dim: int | None = None, readonly: bool = False, create: bool = True
    ) -> PostgresDatabase:
        """Open or create a store, see :meth:`memory.store.MemoryStore.open`.

        Raises:
            NotAStoreError, StoreVersionError: there are no tables that this release reads.
            DimensionError: the store has vectors of another length.
            StoreError: the server is unreachable, or lacks pgvector.
        """
        if dim is not None and check_integer("dim", dim) < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        return cls(address, dim=dim, readonly=readonly, create=create)

    def _prepare(self, dim: int | None, create: bool) -> tuple[int, bool]:
        """Create or update the tables, and read constant values.

        Returns:
            The number of the store's lock, and True if row-level security applies to this user.
        """
        connection = PostgresConnection(self._pool, None if self.readonly else _MAKING)
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = schema.version(connection)
            check_version(found, latest=len(schema.MIGRATIONS), name=self.address)
            if not found:
                if self.readonly or not create:
                    raise NotAStoreError(f"{self.address} holds no store. Create it with recall init")
                if dim is None:
                    raise ValueError(f"{self.address} is a new store. Give dim, the length of its vectors")
                self._make(connection, dim)
            elif found < len(schema.MIGRATIONS):
                if self.readonly:
                    raise StoreVersionError(
                        f"{self.address} has schema version {found}. Open it once for writing"
                    )
                schema.migrate(connection, found)
            stored = read_slots(connection)[DEFAULT_SLOT].dim
            if dim is not None and dim != stored:
                raise DimensionError(
                    f"{self.address} holds vectors of {stored} numbers, but was opened with dim={dim}"
                )
            self.dim = stored
            self._counters.read(connection)
            self.folder = cache_folder(str(meta.read(connection, meta.STORE)))
            sql = (
                "SELECT 'log'::regclass::oid::bigint, row_security_active('memory'),"
                " current_setting('fsync'), current_setting('synchronous_commit')"
            )
            lock, guarded, *waits = connection.execute(sql).fetchone()  # type: ignore[misc]
            for name, value in zip(("fsync", "synchronous_commit"), waits, strict=True):
                if value == "off":
                    self.remarks.append(
                        f"{name} is off on the server, so a power cut can lose acknowledged operations"
                    )
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return int(lock), bool(guarded)

    def _make(self, connection: PostgresConnection, dim: int) -> None:
        """Create the tables of a new store."""
        there = "SELECT 1 FROM pg_type WHERE typname = 'halfvec'"
        if connection.execute(there).fetchone() is None:
            try:
                connection.execute("CREATE EXTENSION vector SCHEMA public")
            except (psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege) as error:
                raise StoreError(
                    f"{self.address} lacks pgvector 0.8 or newer. Install it on the server, and run CREATE"
                    " EXTENSION vector as an owner of the database"
                ) from error
        schema.migrate(connection, 0)
        add_slot(connection, {}, DEFAULT_SLOT, dim)
        meta.write(connection, meta.STORE, secrets.token_hex(16))
        meta.write(connection, "created_ns", time.time_ns())

    def close(self) -> None:
        """Close the connections; a second call does nothing, nor does one in a forked process."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._writer is not None:
            with self._writer.lock:  # Let a running write finish.
                self._pool.close()
        else:
            self._pool.close()

    def interrupt(self) -> None:
        """Interrupt reads and writes, see :meth:`memory.persistence.queries.Queries.interrupt`."""
        self._readers.interrupt()
        if self._writer is not None and not self._closed:
            self._writer.connection.cancel()

    @property
    def _name(self) -> str:
        return self.address

    def _translate_errors(self) -> postgres_errors:
        return postgres_errors(self.address)

    @contextmanager
    def _read(self) -> Iterator[PostgresConnection]:
        self._check_usable()
        with postgres_errors(self.address), self._readers.borrow() as connection:
            yield connection

    def _sizes(self, connection: Any) -> tuple[int, int, int]:
        (size,) = connection.execute(schema.SIZE).fetchone()
        return int(size), 0, 0

    def newest(self, filter: Filter, k: int) -> NDArray[np.int64]:
        """Return the newest ``k`` matches of a filter, newest first."""
        filter = self.resolve(filter)
        with self._read() as connection:
            return search.select_newest(connection, filter, k)

    def nearest(
        self,
        vector: NDArray[np.float32],
        k: int,
        filter: Filter,
        encoder: str = DEFAULT_SLOT,
        *,
        aim: float = nearest.USUAL,
    ) -> nearest.NearestVectors:
        """Search by vector, see :func:`.nearest.search_nearest`; empty for an unknown encoder."""
        with self._read() as connection:
            # The first slot exists as long as the store, so it needs no lookup.
            slots = self._counters.slots if encoder == DEFAULT_SLOT else read_slots(connection)
            slot = slots.get(encoder)
            if slot is None:
                return nearest.NearestVectors(np.zeros(0, np.int64), np.zeros(0, np.float32), False)
            return nearest.search_nearest(connection, slot, vector, k, filter, aim=aim)

    def check(self, repair: bool = False) -> CheckReport:
        """Check rows, log and words; with ``repair``, repair what can be derived."""
        if not repair:
            return self.look()
        if self.guarded:
            raise StoreReadOnlyError(f"only the owner can repair {self.address}")

        def work(connection: Any) -> CheckReport:
            return checks.repair(connection)

        return self._write(work)

    def look(self) -> CheckReport:
        """Check as far as a reader can while others write.

        Raises:
            StoreReadOnlyError: this user does not see all rows.
        """
        if self.guarded:
            raise StoreReadOnlyError(
                f"only the owner can check {self.address}, because others do not see all rows"
            )
        with self._read() as connection:
            return checks.look(connection)


def cache_folder(store: str) -> Path:
    """Return this computer's cache folder of a store on a server, created if needed."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "sparsight" / "stores" / store
    folder.mkdir(parents=True, exist_ok=True)
    return folder
