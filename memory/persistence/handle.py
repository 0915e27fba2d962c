"""An open store: its file, its connections and who may write."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from typing_extensions import Self

from memory.errors import StoreClosedError, StoreReadOnlyError
from memory.persistence import checksums
from memory.persistence.cache import KeptMemories
from memory.persistence.log.journal import Counters
from memory.persistence.queries import Opened
from memory.persistence.sqlite import files
from memory.persistence.sqlite import upkeep as erase
from memory.persistence.sqlite.connection import Readers, connect_reader, connect_writer, translated
from memory.persistence.sqlite.lock import WriterLock
from memory.persistence.sqlite.migrations import migrate
from memory.persistence.sqlite.repair import losses as lost
from memory.persistence.sqlite.writer import Writer
from memory.types import check_integer


class Handle(Opened):
    """Opens and closes the file of a store, and lends its connections.

    One connection writes, behind a queue; those that read come from a pool. A handle does not survive
    ``os.fork``.

    Attributes:
        folder: of the store.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
        remarks: what opening found that its user should know: lost operations, an erasure that waits.
        shared, guarded: never: a file has one writer, who owns it.
    """

    shared = False
    guarded = False

    def __init__(self, folder: Path, *, dim: int | None, readonly: bool, lock: WriterLock | None) -> None:
        """Used by :meth:`open`."""
        self.folder = folder
        self.readonly = readonly
        self._file = folder / files.FILE_NAME
        self._lock = lock
        self._pid = os.getpid()
        self._closed = False
        self._counters = Counters()
        self._readers = Readers(self._file)
        self._kept = KeptMemories()
        self._writer: Writer | None = None
        self.remarks: list[str] = []
        self._identity = files.hold(self._file)
        try:
            connection = self._connected(dim)
            if readonly:
                connection.close()
            else:
                self._writer = Writer(connection, self._file, self._identity, self._counters, lock)
        except BaseException:
            files.let_go(self._identity)
            raise

    def _connected(self, dim: int | None) -> sqlite3.Connection:
        """The first connection, to a store that was looked at and is up to date."""
        kept = None if self.readonly else lost.keep_damaged_log(self._file)
        with translated(self._file):
            # Before a connection for writing, which would turn a database of any program into one with a log.
            connection = connect_reader(self._file)
            with closing(connection):
                version = files.check_store(connection, self._file)
            connection = connect_reader(self._file) if self.readonly else connect_writer(self._file)
            try:
                if self.readonly:
                    files.check_current(version, self._file)
                else:
                    migrate(connection, name=str(self._file))
                    self._remark(checksums.complete_now(connection))
                self.dim = files.check_dim(connection, self._file, dim)
                self._counters.read(connection)
                if not self.readonly:
                    left = None if self._lock is None else self._lock.left
                    self._remark(lost.note_lost(connection, self._counters, left, kept))
                    self._remark(erase.scrub_now(connection))
            except BaseException:
                connection.close()
                raise
        return connection

    def _remark(self, said: str | None) -> None:
        """Something that opening found, which check tells too."""
        if said is not None:
            self.remarks.append(said)
            logging.getLogger(__name__).warning("%s: %s", self.folder, said)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        dim: int | None = None,
        readonly: bool = False,
        create: bool = True,
    ) -> Self:
        """Open or make a store, see :meth:`memory.store.MemoryStore.open`.

        Raises:
            NotAStoreError, StoreVersionError, CorruptStoreError: the file is not one that this release reads.
            StoreLockedError: another process, or another handle, writes.
            StoreReadOnlyError: the folder cannot be written.
            DimensionError: the store has vectors of another length.
        """
        path = Path(folder).absolute()
        if dim is not None and check_integer("dim", dim) < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        if readonly:
            return cls(path, dim=dim, readonly=True, lock=None)
        if create:
            files.make_folder(path)
        elif not (path / files.FILE_NAME).exists():
            files.check_file(path / files.FILE_NAME)
        lock = WriterLock(path / files.LOCK_NAME)
        try:
            file = path / files.FILE_NAME
            if create and not file.exists() and not Path(f"{file}-wal").exists():
                if dim is None:
                    raise ValueError(f"{path} is a new store: give dim, the length of its vectors")
                files.create_file(path, dim)
            return cls(path, dim=dim, readonly=False, lock=lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Let go of the files; a second call does nothing, nor does one in a forked process."""
        if self._closed or os.getpid() != self._pid:
            return
        if self._writer is None:
            self._closed = True
            self._readers.close()
            files.let_go(self._identity)
            return
        with self._writer.lock:
            self._closed = True
            self._readers.close()
            try:
                with translated(self._file):
                    erase.tidy(self._writer.connection)
                    self._writer.connection.close()
            finally:
                files.let_go(self._identity)
                if self._lock is not None:
                    log = Path(f"{self._file}-wal")
                    self._lock.release(whole=not (log.exists() and log.stat().st_size))

    def interrupt(self) -> None:
        """End what is read and written just now, in any thread; what was being written is rolled back.

        Those who wait for it get :class:`QueryInterruptedError`. What comes afterwards is not affected.
        """
        self._readers.interrupt()
        if self._writer is not None and not self._closed:
            self._writer.connection.interrupt()

    def _translated(self) -> translated:
        return translated(self._file)

    @contextmanager
    def _alone(self) -> Iterator[Writer]:
        """The writer, while nobody else writes."""
        writer = self._check_writer()
        with writer.lock, translated(self._file):
            yield writer

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        self._check_usable()
        with self._readers.borrow() as connection:
            yield connection

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self.folder} was closed")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                f"{self.folder} was opened by process {self._pid}: open it anew after a fork"
            )

    def _check_writer(self) -> Writer:
        self._check_usable()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self.folder} was opened for reading only")
        return self._writer
