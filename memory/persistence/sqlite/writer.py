"""Writing connection of a SQLite store, and its work for each transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from memory.errors import StoreError
from memory.persistence import meta
from memory.persistence.log.journal import Counters
from memory.persistence.log.writer import Writer
from memory.persistence.sqlite import files
from memory.persistence.sqlite.lock import Acknowledgement, WriterLock


class SqliteWriter(Writer):
    """Writer to a file that records the store's progress."""

    connection: sqlite3.Connection

    def __init__(
        self,
        connection: sqlite3.Connection,
        file: Path,
        identity: files.Identity,
        counters: Counters,
        lock: WriterLock | None,
    ) -> None:
        super().__init__(connection, counters)
        self._file = file
        self._name = str(file)
        self._identity = identity
        self._lock = lock
        self._store = str(meta.read(connection, meta.STORE))

    def begin(self) -> None:
        """Check that the file is still the opened one, then write the pending observations."""
        if not files.is_same(self._name, self._identity):
            raise StoreError(
                f"{self._file} was replaced, renamed or removed while it was open. Nothing of this operation"
                " was kept; close the store and open it again"
            )
        super().begin()

    def after_commit(self) -> None:
        """Record the progress for the next opening."""
        super().after_commit()
        if self._lock is not None:
            self._lock.acknowledge(self._now())

    def latest_acknowledgement(self) -> Acknowledgement:
        """Return the latest known progress of this store."""
        left = None if self._lock is None else self._lock.last_acknowledgement
        if left is None or left.store != self._store or left.generation < self.counters.generation:
            return self._now()
        return left

    def reload(self) -> None:
        """Read the state of a database that replaced the file's content."""
        self.counters.read(self.connection)
        self._store = str(meta.read(self.connection, meta.STORE))

    def _now(self) -> Acknowledgement:
        return Acknowledgement(self._store, self.counters.generation, self.counters.next_id)
