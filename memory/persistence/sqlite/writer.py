"""The one connection that writes, and what goes with each of its transactions."""

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
    """Commits to a file, and notes how far the store came.

    Args:
        connection: to write to.
        file: of the store.
        identity: of the file that was opened.
        counters: as the file has them; follow.
        lock: of the process that writes, or ``None``.
    """

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
        """Before anything is written: the file is the one that was opened, and sights do not wait longer."""
        if not files.is_same(self._name, self._identity):
            raise StoreError(
                f"{self._file} was replaced, renamed or removed while it was open: nothing of this operation"
                " was kept; close the store and open it again"
            )
        super().begin()

    def committed(self) -> None:
        """Note what is on the disk, for who opens the store next."""
        super().committed()
        if self._lock is not None:
            self._lock.acknowledge(self._now())

    def came_to(self) -> Acknowledgement:
        """How far this store came, as far as that is known."""
        left = None if self._lock is None else self._lock.left
        if left is None or left.store != self._store or left.generation < self.counters.generation:
            return self._now()
        return left

    def renewed(self) -> None:
        """Another database took the place of the file: read what it has."""
        self.counters.read(self.connection)
        self._store = str(meta.read(self.connection, meta.STORE))

    def _now(self) -> Acknowledgement:
        return Acknowledgement(self._store, self.counters.generation, self.counters.next_id)
