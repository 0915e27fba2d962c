"""The database of a store in a file of SQLite."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from typing_extensions import Self

from memory.persistence import meta
from memory.persistence.cache import MemoryCache
from memory.persistence.database import Database
from memory.persistence.log.journal import Counters
from memory.persistence.reports import CheckReport, Progress
from memory.persistence.sqlite import files, migrations, upkeep
from memory.persistence.sqlite.connection import (
    SqliteConnection,
    SqliteReaders,
    connect_reader,
    connect_writer,
    sqlite_errors,
)
from memory.persistence.sqlite.lock import WriterLock
from memory.persistence.sqlite.repair import checks, losses, renewal
from memory.persistence.sqlite.writer import SqliteWriter
from memory.types import check_integer

#: An operation on so many memories cuts the write-ahead log afterwards.
LARGE = 10_000


class SqliteDatabase(Database):
    """One SQLite file in the folder of a store; open it with :meth:`open`.

    One process writes, any number read at the same time. A handle may be used from many threads: writes queue
    for the one connection that writes and share commits, reads take a connection each from a pool and see
    one moment. A handle does not survive ``os.fork``.

    Attributes:
        folder: of the store.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
        remarks: what opening found that its user should know: lost operations, an erasure that waits.
        shared, guarded: never: a file has one writer, who owns it.
    """

    _kept: MemoryCache
    _writer: SqliteWriter | None
    shared = False
    guarded = False

    def __init__(self, folder: Path, *, dim: int | None, readonly: bool, lock: WriterLock | None) -> None:
        """Used by :meth:`open`."""
        self.folder = folder
        self.readonly = readonly
        self._file = folder / files.FILE_NAME
        self._lock = lock
        self._pid = os.getpid()
        self._counters = Counters()
        self._readers = SqliteReaders(self._file)
        self._kept = MemoryCache()
        self._writer = None
        self.remarks: list[str] = []
        self._identity = files.hold(self._file)
        try:
            connection = self._connected(dim)
            if readonly:
                connection.close()
            else:
                self._writer = SqliteWriter(connection, self._file, self._identity, self._counters, lock)
        except BaseException:
            files.let_go(self._identity)
            raise

    def _connected(self, dim: int | None) -> SqliteConnection:
        """The first connection, to a store that was looked at and is up to date."""
        kept = None if self.readonly else losses.keep_damaged_log(self._file)
        with sqlite_errors(self._file):
            # Before a connection for writing, which would turn a database of any program into one with a log.
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
                    left = None if self._lock is None else self._lock.left
                    self._remark(losses.note_lost(connection, self._counters, left, kept))
                    self._remark(upkeep.scrub_now(connection))
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
                with sqlite_errors(self._file):
                    upkeep.tidy(self._writer.connection)
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

    @property
    def _name(self) -> str:
        return str(self.folder)

    def _translated(self) -> sqlite_errors:
        return sqlite_errors(self._file)

    @contextmanager
    def _alone(self) -> Iterator[SqliteWriter]:
        """The writer, while nobody else writes."""
        self._check_writer()
        assert self._writer is not None
        with self._writer.lock, sqlite_errors(self._file):
            yield self._writer

    @contextmanager
    def _read(self) -> Iterator[SqliteConnection]:
        self._check_usable()
        with self._readers.borrow() as connection:
            yield connection

    def _sizes(self, connection: SqliteConnection) -> tuple[int, int, int]:
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        log = Path(f"{self._file}-wal")
        return self._file.stat().st_size, log.stat().st_size if log.exists() else 0, page * free

    def look(self) -> CheckReport:
        """What a reader can say of damage while others write."""
        with self._read() as connection:
            return checks.look(connection, self.folder)

    def tidy(self) -> bool:
        """Cut the write-ahead log to nothing unless a reader needs it, without waiting; whether one did."""
        with self._alone() as writer:
            return upkeep.tidy(writer.connection)

    def _tidy_after(self, rows: int) -> None:
        if rows >= LARGE:
            self.tidy()

    def scrub(self) -> None:
        """Write the database anew so that nothing of removed memories stays in the files.

        Raises:
            EraseError: a reader, here or in another process, was in the way, or there is no room for a second
            copy; call it again. The store does so too when it is opened for writing.
        """
        with self._alone() as writer:
            self._kept.clear()
            upkeep.scrub(writer.connection)

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """See :func:`memory.persistence.sqlite.upkeep.copy_store`."""
        with self._read() as connection:
            return upkeep.copy_store(connection, Path(folder).absolute(), progress, beside)

    def check(self, repair: bool = False) -> CheckReport:
        """See :meth:`memory.store.MemoryStore.check`."""
        if self.readonly and not repair:
            return self.look()
        with self._alone() as writer:
            problems = checks.find_problems(writer.connection, self.folder, writer=True)
            if not (repair and problems):
                return checks.report(writer.connection, checks.flat(problems))
            return self._repaired(writer, problems)

    def _repaired(self, writer: SqliteWriter, problems: dict[str, list[str]]) -> CheckReport:
        """Repair, and look again."""
        self._kept.clear()
        connection = writer.connection
        migrations.complete(connection)  # Rows without one would count as damaged.
        done: list[str] = []
        gone: list[str] = []
        said = meta.read(connection, meta.LOSS) if "rows" not in problems else None
        if said is not None:
            writer.run_alone(lambda connection: meta.delete(connection, meta.LOSS))
            gone.append(str(said))
            problems = checks.find_problems(connection, self.folder, writer=True)
        if problems and set(problems) <= checks.DERIVED:
            done += writer.run_alone(lambda connection: checks.repair(connection, self._counters))
            if "erasure" in problems:
                upkeep.scrub(connection)
            if "settings" in problems:
                done.append(renewal.mend_settings(self.folder, self.settings))
            problems = checks.find_problems(connection, self.folder, writer=True)
        if problems:
            salvaged, told = renewal.renew(connection, self._file, writer.came_to())
            writer.renewed()
            done += told
            gone += salvaged.lost
            problems = checks.find_problems(connection, self.folder, writer=True)
        return checks.report(connection, checks.flat(problems), done, gone)

    @classmethod
    def repair(cls, folder: str | os.PathLike[str]) -> CheckReport:
        """Repair a store that cannot be opened, and look at what was made of it.

        Nobody may have it open. The damaged files are kept beside the new ones.

        Raises:
            NotAStoreError: there is no store.
            CorruptStoreError: not one row of a store is left.
            StoreLockedError: another process writes.
        """
        path = Path(folder).absolute()
        found = renewal.repair_files(path)
        with cls.open(path, create=False) as database:
            now = database.check()
        return CheckReport(now.memories, now.problems, found.repaired, found.lost)
