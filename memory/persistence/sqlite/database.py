"""Database of a store in a SQLite file."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from typing_extensions import Self

from memory.errors import StoreError
from memory.persistence import meta
from memory.persistence.cache import MemoryCache
from memory.persistence.database import Database
from memory.persistence.deadline import check_deadline
from memory.persistence.log.journal import Counters
from memory.persistence.log.writer import Writer
from memory.persistence.reports import CheckReport, Progress
from memory.persistence.sqlite import files, migrations, upkeep
from memory.persistence.sqlite.connection import (
    SqliteConnection,
    SqliteReaders,
    connect_reader,
    connect_writer,
    sqlite_errors,
)
from memory.persistence.sqlite.lock import Acknowledgement, WriterLock
from memory.persistence.sqlite.repair import checks, losses, renewal
from memory.types import check_integer


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


#: Operations on this many memories truncate the write-ahead log afterwards.
LARGE = 10_000


class SqliteDatabase(Database):
    """SQLite file in the folder of a store; open it with :meth:`open`.

    One process writes, and any number read at the same time. A handle may be used from many threads: writes
    queue for the writing connection and share commits, and each read uses a pooled connection and sees one
    moment. A handle does not survive ``os.fork``.

    Attributes:
        dim: length of the default vectors.
        readonly: True if it was opened for reading only.
        remarks: findings of the opening for its user: lost operations, or a pending erasure.
        shared, guarded: False, because a file has one writer, its owner.
    """

    _cache: MemoryCache
    _writer: SqliteWriter | None
    shared = False
    guarded = False

    def __init__(self, folder: Path, *, dim: int | None, readonly: bool, lock: WriterLock | None) -> None:
        """Open the store; use :meth:`open`."""
        self.folder = folder
        self.readonly = readonly
        self._file = folder / files.FILE_NAME
        self._lock = lock
        self._pid = os.getpid()
        self._counters = Counters()
        self._readers = SqliteReaders(self._file)
        #: Connection of :meth:`one_moment` in each thread.
        self._moment = threading.local()
        self._cache = MemoryCache()
        self._writer = None
        self.remarks: list[str] = []
        self._identity = files.hold(self._file)
        try:
            connection = self._connect(dim)
            if readonly:
                connection.close()
            else:
                self._writer = SqliteWriter(connection, self._file, self._identity, self._counters, lock)
        except BaseException:
            files.release(self._identity)
            raise

    def _connect(self, dim: int | None) -> SqliteConnection:
        """Check the store, update it, and return its first connection."""
        kept = None if self.readonly else losses.keep_damaged_log(self._file)
        with sqlite_errors(self._file):
            # Check with a reader first, because a writing connection would convert any database to
            # write-ahead logging.
            connection = connect_reader(self._file)
            with closing(connection):
                version = files.check_store(connection, self._file)
            connection = connect_reader(self._file) if self.readonly else connect_writer(self._file)
            try:
                if self.readonly:
                    files.check_current(version, self._file)
                else:
                    migrations.migrate(connection, name=str(self._file))
                    self._remark(migrations.complete_now(connection))
                self.dim = files.check_dim(connection, self._file, dim)
                self._counters.read(connection)
                if not self.readonly:
                    left = None if self._lock is None else self._lock.last_acknowledgement
                    self._remark(losses.note_lost(connection, self._counters, left, kept))
                    self._remark(upkeep.scrub_now(connection))
            except BaseException:
                connection.close()
                raise
        return connection

    def _remark(self, text: str | None) -> None:
        """Record a finding of the opening, which check reports too."""
        if text is not None:
            self.remarks.append(text)
            logging.getLogger(__name__).warning("%s: %s", self.folder, text)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        dim: int | None = None,
        readonly: bool = False,
        create: bool = True,
    ) -> Self:
        """Open or create a store, see :meth:`memory.store.MemoryStore.open`.

        Raises:
            NotAStoreError, StoreVersionError, CorruptStoreError: this release cannot read the file.
            StoreLockedError: another process or handle writes.
            StoreReadOnlyError: the folder is not writable.
            DimensionError: the store has vectors of another length.
        """
        path = Path(folder).absolute()
        if dim is not None and check_integer("dim", dim) < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        if readonly:
            return cls(path, dim=dim, readonly=True, lock=None)
        if create:
            if dim is None and not path.exists():
                # Checked here too, so that no empty folder is left.
                raise ValueError(f"{path} is a new store. Give dim, the length of its vectors")
            files.make_folder(path)
        elif not (path / files.FILE_NAME).exists():
            files.check_file(path / files.FILE_NAME)
        lock = WriterLock(path / files.LOCK_NAME)
        try:
            file = path / files.FILE_NAME
            if create and not file.exists() and not Path(f"{file}-wal").exists():
                if dim is None:
                    raise ValueError(f"{path} is a new store. Give dim, the length of its vectors")
                files.create_file(path, dim)
            return cls(path, dim=dim, readonly=False, lock=lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Close the files; a second call does nothing, nor does one in a forked process."""
        if self._closed or os.getpid() != self._pid:
            return
        if self._writer is None:
            self._closed = True
            self._readers.close()
            files.release(self._identity)
            return
        with self._writer.lock:
            self._closed = True
            self._readers.close()
            try:
                with sqlite_errors(self._file):
                    upkeep.tidy(self._writer.connection)
                    self._writer.connection.close()
            finally:
                files.release(self._identity)
                if self._lock is not None:
                    log = Path(f"{self._file}-wal")
                    self._lock.release(whole=not (log.exists() and log.stat().st_size))

    def interrupt(self) -> None:
        """Interrupt running reads and writes in all threads; a running write is rolled back.

        Their callers get :class:`QueryInterruptedError`. Later calls are not affected.
        """
        self._readers.interrupt()
        if self._writer is not None and not self._closed:
            self._writer.connection.interrupt()

    @property
    def _name(self) -> str:
        return str(self.folder)

    def _translate_errors(self) -> sqlite_errors:
        return sqlite_errors(self._file)

    @contextmanager
    def _exclusive_writer(self) -> Iterator[SqliteWriter]:
        """Return the writer, while nobody else writes."""
        self._check_writer()
        assert self._writer is not None
        with self._writer.lock, sqlite_errors(self._file):
            yield self._writer

    @contextmanager
    def _read(self) -> Iterator[SqliteConnection]:
        self._check_usable()
        held: SqliteConnection | None = getattr(self._moment, "connection", None)
        if held is not None:
            with sqlite_errors(self._file):
                check_deadline()
                yield held
            return
        with self._readers.borrow() as connection:
            yield connection

    def _latest(self, connection: SqliteConnection) -> int:
        if connection.generation is None:
            connection.generation = super()._latest(connection)
        return connection.generation

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """See :meth:`.Queries.one_moment`."""
        self._check_usable()
        with sqlite_errors(self._file):
            connection = self._readers.take()
        try:
            with sqlite_errors(self._file):
                connection.execute("BEGIN")
            self._moment.connection = connection
            yield
        finally:
            self._moment.connection = None
            self._readers.give_back(connection)

    def _sizes(self, connection: SqliteConnection) -> tuple[int, int, int]:
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        log = Path(f"{self._file}-wal")
        return self._file.stat().st_size, log.stat().st_size if log.exists() else 0, page * free

    def look(self) -> CheckReport:
        """Check as far as a reader can while others write."""
        with self._read() as connection:
            return checks.look(connection, self.folder)

    def tidy(self) -> bool:
        """Truncate the write-ahead log without waiting; return True if a reader prevented it."""
        with self._exclusive_writer() as writer:
            return upkeep.tidy(writer.connection)

    def _tidy_after(self, rows: int) -> None:
        if rows >= LARGE:
            self.tidy()

    def scrub(self) -> None:
        """Rewrite the database so that nothing of removed memories stays in the files.

        Raises:
            EraseError: a reader, here or in another process, or lack of space for a second copy was in the
                way. Call it again; the store also tries when it is opened for writing.
        """
        with self._exclusive_writer() as writer:
            self._cache.clear()
            upkeep.scrub(writer.connection)

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write a backup, see :func:`memory.persistence.sqlite.upkeep.copy_store`."""
        with self._read() as connection:
            return upkeep.copy_store(connection, Path(folder).absolute(), progress, beside)

    def check(self, repair: bool = False) -> CheckReport:
        """See :meth:`memory.store.MemoryStore.check`."""
        if self.readonly and not repair:
            return self.look()
        with self._exclusive_writer() as writer:
            problems = checks.find_problems(writer.connection, self.folder, writer=True)
            if not (repair and problems):
                return checks.report(writer.connection, checks.flatten(problems))
            return self._repair(writer, problems)

    def _repair(self, writer: SqliteWriter, problems: dict[str, list[str]]) -> CheckReport:
        """Repair the problems, and check again."""
        self._cache.clear()
        connection = writer.connection
        migrations.complete(connection)  # Rows without a checksum would count as damaged.
        done: list[str] = []
        gone: list[str] = []
        loss = meta.read(connection, meta.LOSS) if "rows" not in problems else None
        if loss is not None:
            writer.run_alone(lambda connection: meta.delete(connection, meta.LOSS))
            gone.append(str(loss))
            problems = checks.find_problems(connection, self.folder, writer=True)
        if problems and set(problems) <= checks.DERIVED:
            done += writer.run_alone(lambda connection: checks.repair(connection, self._counters))
            if "erasure" in problems:
                upkeep.scrub(connection)
            if "settings" in problems:
                done.append(renewal.mend_settings(self.folder, self.settings))
            problems = checks.find_problems(connection, self.folder, writer=True)
        if problems:
            salvaged, actions = renewal.renew(connection, self._file, writer.latest_acknowledgement())
            writer.reload()
            done += actions
            gone += salvaged.lost
            problems = checks.find_problems(connection, self.folder, writer=True)
        return checks.report(connection, checks.flatten(problems), done, gone)

    @classmethod
    def repair(cls, folder: str | os.PathLike[str]) -> CheckReport:
        """Repair a store that cannot be opened, and check the result.

        Nobody may have it open. The damaged files are kept beside the new ones.

        Raises:
            NotAStoreError: there is no store.
            CorruptStoreError: not a single row is readable.
            StoreLockedError: another process writes.
        """
        path = Path(folder).absolute()
        found = renewal.repair_files(path)
        with cls.open(path, create=False) as database:
            now = database.check()
        return CheckReport(now.memories, now.problems, found.repaired, found.lost)
