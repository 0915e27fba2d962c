"""The database of a store on a server."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg_pool import ConnectionPool

from memory.errors import (
    DimensionError,
    EraseError,
    NotAStoreError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
    StoreVersionError,
)
from memory.persistence import database, erase, meta
from memory.persistence.copying import Progress
from memory.persistence.integrity import CheckReport
from memory.persistence.journal import STORE, Counters
from memory.persistence.postgres import checking, nearest, schema
from memory.persistence.postgres.address import without_password
from memory.persistence.postgres.connection import (
    MOST_CONNECTIONS,
    WAIT_S,
    Readers,
    ServerConnection,
    configure,
    translated,
)
from memory.persistence.postgres.images import add_slot
from memory.persistence.postgres.writer import ServerWriter
from memory.persistence.records import DEFAULT_SLOT
from memory.persistence.statistics import Stats
from memory.persistence.tables import read_slots
from memory.query import Filter
from memory.types import check_integer

#: Seconds that an erasure waits for readers.
ERASE_WAIT_S = 10
#: Of the lock under which tables are made: "RCLL" in ASCII, as the files of stores have it.
_MAKING = 0x52434C4C


class Database(database.Database):
    """The tables of a store in the first schema of the connection's ``search_path``.

    Any number of processes write: their operations come one after another, each durable when it returns.

    Attributes:
        address: of the store, without the password.
        folder: this computer's caches of the store.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
    """

    shared = True

    def __init__(self, address: str, *, dim: int | None, readonly: bool, create: bool) -> None:
        """Used by :meth:`open`."""
        self.address = without_password(address)
        self.readonly = readonly
        self.remarks = []
        self._pid = os.getpid()
        self._closed = False
        self._counters = Counters()
        with translated(self.address):
            # Alone, because the pool would try again and not say what is wrong.
            psycopg.connect(address, connect_timeout=10).close()
            self._pool = ConnectionPool(
                address,
                min_size=1,
                max_size=MOST_CONNECTIONS,
                timeout=WAIT_S,
                open=True,
                configure=configure,
                kwargs={"autocommit": True, "application_name": "sparsight"},
            )
            try:
                lock = self._prepare(dim, create)
            except BaseException:
                self._pool.close()
                raise
        self._readers = Readers(self._pool)
        writing = ServerConnection(self._pool, lock)
        self._writer = None if readonly else ServerWriter(writing, self._counters)

    @classmethod
    def open(
        cls, address: str, *, dim: int | None = None, readonly: bool = False, create: bool = True
    ) -> Database:
        """Open or make a store, see :meth:`memory.store.MemoryStore.open`.

        Raises:
            NotAStoreError, StoreVersionError: there are no tables that this release reads.
            DimensionError: the store has vectors of another length.
            StoreError: the server cannot be reached, or lacks pgvector.
        """
        if dim is not None and check_integer("dim", dim) < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        return cls(address, dim=dim, readonly=readonly, create=create)

    def _prepare(self, dim: int | None, create: bool) -> int:
        """Make the tables or bring them up to date, read what is fixed; the number of the store's lock."""
        connection = ServerConnection(self._pool, None if self.readonly else _MAKING)
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = schema.version(connection)
            schema.check_version(found, self.address)
            if not found:
                if self.readonly or not create:
                    raise NotAStoreError(f"{self.address} holds no store: recall init makes one")
                if dim is None:
                    raise ValueError(f"{self.address} is a new store: give dim, the length of its vectors")
                self._make(connection, dim)
            elif found < len(schema.MIGRATIONS):
                if self.readonly:
                    raise StoreVersionError(
                        f"{self.address} has schema version {found}: open it for writing once"
                    )
                schema.migrate(connection, found)
            stored = read_slots(connection)[DEFAULT_SLOT].dim
            if dim is not None and dim != stored:
                raise DimensionError(
                    f"{self.address} holds vectors of {stored} numbers, it was opened with dim={dim}"
                )
            self.dim = stored
            self._counters.read(connection)
            self.folder = cache_folder(str(meta.read(connection, STORE)))
            lock = connection.execute("SELECT 'log'::regclass::oid::bigint").fetchone()[0]  # type: ignore[index]
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return int(lock)

    def _make(self, connection: ServerConnection, dim: int) -> None:
        """The tables of a new store."""
        there = "SELECT 1 FROM pg_type WHERE typname = 'halfvec'"
        if connection.execute(there).fetchone() is None:
            try:
                connection.execute("CREATE EXTENSION vector SCHEMA public")
            except (psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege) as error:
                raise StoreError(
                    f"{self.address} lacks pgvector 0.8 or newer: install it on the server, and run CREATE"
                    " EXTENSION vector as an owner of the database"
                ) from error
        schema.migrate(connection, 0)
        add_slot(connection, {}, DEFAULT_SLOT, dim)
        meta.write(connection, STORE, secrets.token_hex(16))
        meta.write(connection, "created_ns", time.time_ns())

    def close(self) -> None:
        """Let go of the server; a second call does nothing, nor does one in a forked process."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._writer is not None:
            with self._writer.lock:  # What is being written ends first.
                self._pool.close()
        else:
            self._pool.close()

    def interrupt(self) -> None:
        """See :meth:`memory.persistence.opened.Opened.interrupt`."""
        self._readers.interrupt()
        if self._writer is not None and not self._closed:
            self._writer.connection.cancel()

    def _translated(self) -> translated:
        return translated(self.address)

    @contextmanager
    def _read(self) -> Iterator[ServerConnection]:
        self._check_usable()
        with translated(self.address), self._readers.borrow() as connection:
            yield connection

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self.address} was closed")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                f"{self.address} was opened by process {self._pid}: open it anew after a fork"
            )

    def _check_writer(self) -> ServerWriter:
        self._check_usable()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self.address} was opened for reading only")
        return self._writer

    def stats(self) -> Stats:
        """Sizes of everything; those of files are what the tables and their indexes take on the server."""
        with self._read() as connection:
            return checking.read_stats(connection)

    def nearest(
        self,
        vector: NDArray[np.float32],
        k: int,
        filter: Filter,
        encoder: str = DEFAULT_SLOT,
        *,
        exact: bool = False,
    ) -> nearest.Nearest:
        """See :func:`memory.persistence.postgres.nearest.search`; nothing for an unknown encoder."""
        with self._read() as connection:
            slot = read_slots(connection).get(encoder)
            if slot is None:
                return nearest.Nearest(np.zeros(0, np.int64), np.zeros(0, np.float32), False)
            return nearest.search(connection, slot, vector, k, filter, exact=exact)

    def make_indexes(self, least: int) -> None:
        """Make the server's indexes over the vectors of which there are more than so many.

        Nobody waits for it but the caller; of vectors that are too long for such an index all are compared.
        """
        self._check_writer()
        with self._read() as connection:
            sql = "SELECT slot, count(*) FROM embedding GROUP BY 1"
            counts: dict[int, int] = dict(connection.execute(sql).fetchall())
            slots = [
                slot
                for slot in read_slots(connection).values()
                if counts.get(slot.number, 0) > least and slot.dim <= nearest.MOST_DIM
            ]
        with translated(self.address), self._pool.connection() as raw:
            for slot in slots:
                nearest.make_index(raw, slot)

    def tidy(self) -> bool:
        """Nothing: the server does so by itself."""
        return False

    def scrub(self) -> None:
        """Write the tables anew so that nothing of removed memories stays in them.

        What the server's own log and its backups keep is its owner's to remove.

        Raises:
            EraseError: a reader was in the way for ten seconds; call it again.
        """
        self._check_writer()
        try:
            with translated(self.address), self._pool.connection() as raw:
                raw.execute(f"SET lock_timeout = '{ERASE_WAIT_S}s'")
                try:
                    for table in schema.ERASED:
                        raw.execute(f"VACUUM (FULL) {table}")
                finally:
                    raw.execute("RESET lock_timeout")
        except StoreError as error:
            raise EraseError(
                f"removed, but old bytes stay in the tables until they are written anew, by scrub(): {error}"
            ) from error
        self._write(lambda connection: meta.delete(connection, erase.NOTE))

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Always raises :class:`StoreError`: the server has better ways."""
        raise StoreError(
            f"{self.address} is backed up by its server: pg_dump for one store, pg_basebackup and its log for"
            " any moment; recall export writes the memories to a file"
        )

    def check(self, repair: bool = False) -> CheckReport:
        """Whether rows, log and words fit each other; with ``repair``, mend what can be derived."""
        if not repair:
            return self.look()

        def work(connection: Any) -> CheckReport:
            return checking.repair(connection)

        return self._write(work)

    def look(self) -> CheckReport:
        """What a reader can say of damage while others write."""
        with self._read() as connection:
            return checking.look(connection)


def cache_folder(store: str) -> Path:
    """Where this computer keeps caches of a store on a server, made where there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "sparsight" / "stores" / store
    folder.mkdir(parents=True, exist_ok=True)
    return folder
