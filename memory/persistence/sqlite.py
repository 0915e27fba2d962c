"""The database of a store: what is in it is the truth, everything else can be rebuilt from it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.errors import StoreClosedError, StoreReadOnlyError
from memory.persistence import erase, files, integrity, journal, operations, poses, reading, tables
from memory.persistence.connection import Readers, connect_reader, connect_writer, translated
from memory.persistence.copying import Progress, copy_store
from memory.persistence.filters import Filter
from memory.persistence.group_commit import GroupCommit
from memory.persistence.journal import Changes, Counters, LogEntry
from memory.persistence.lock import WriterLock
from memory.persistence.migrations import migrate
from memory.persistence.operations import Addition, Applied
from memory.persistence.reading import Columns, Order, TextHits
from memory.persistence.records import DEFAULT_SLOT, SLOTS, Prepared, prepare
from memory.persistence.tables import Vectors, check_ids, check_new, id_array
from memory.types import Memory, check_integer

Result = TypeVar("Result")

EVERYTHING = Filter()


@dataclass(frozen=True)
class Stats:
    """Sizes of a store.

    Attributes:
        memories: how many there are.
        by_map, by_kind: the same for each.
        vectors: by encoder.
        generation: of the last operation.
        next_id: of the next memory.
        file_bytes, log_bytes: of the database and its write-ahead log.
        free_bytes: within the file, to be used again.
    """

    memories: int
    by_map: dict[str, int]
    by_kind: dict[str, int]
    vectors: dict[str, int]
    generation: int
    next_id: int
    file_bytes: int
    log_bytes: int
    free_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Database:
    """One SQLite file in the folder of a store; open it with :meth:`open`.

    One process writes, any number read at the same time. A handle may be used from many threads: writes queue
    for the one connection that writes and share commits, reads take a connection each from a pool and see
    one moment. A handle does not survive ``os.fork``.

    Attributes:
        folder: of the store.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
    """

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
        self._writer: sqlite3.Connection | None = None
        files.check_file(self._file)
        with translated(self._file):
            # Before a connection for writing, which would turn a database of any program into one with a log.
            connection = connect_reader(self._file)
            with closing(connection):
                version = files.check_store(connection, self._file)
            connection = connect_reader(self._file) if readonly else connect_writer(self._file)
            try:
                if readonly:
                    files.check_current(version, self._file)
                else:
                    migrate(connection, name=str(self._file))
                self.dim = files.check_dim(connection, self._file, dim)
                self._counters.read(connection)
                if not readonly and erase.is_pending(connection):
                    erase.scrub(connection)
            except BaseException:
                connection.close()
                raise
        if readonly:
            connection.close()
        else:
            self._writer = connection
            self._group: GroupCommit[Addition, Applied] = GroupCommit(
                connection,
                lambda: self._counters.read(connection),
                lambda connection, additions: operations.add_all(connection, self._counters, additions),
            )

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        dim: int | None = None,
        readonly: bool = False,
        create: bool = True,
    ) -> Database:
        """Open or make a store.

        Args:
            folder: of the store.
            dim: length of the vectors; needed for a new store, checked for an old one.
            readonly: never change anything; may be while another process writes.
            create: make the store where there is none, unless ``readonly``.

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
            return
        with self._group.lock:
            self._closed = True
            self._readers.close()
            try:
                with translated(self._file):
                    self._writer.close()
            finally:
                if self._lock is not None:
                    self._lock.release()

    def __enter__(self) -> Database:
        """The database itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def add(
        self, rows: Sequence[Memory], *, operation: str = "add", detail: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Store memories; return their ids once they are on the disk. All of them or none.

        Threads that add at the same time share a commit.

        Raises:
            ValueError, TypeError, DimensionError: a row is not right; nothing was stored.
            StoreFullError: no room; nothing was stored.
        """
        prepared = prepare(rows, self._counters.slots)
        check_new(rows)
        return self._add(Addition(prepared, operation, dict(detail or {}))).ids

    def remove(
        self, ids: Iterable[int], *, secure: bool = False, detail: Mapping[str, Any] | None = None
    ) -> int:
        """Take memories away; return the generation.

        Args:
            ids: of the memories.
            secure: for good, from the files too: the operation cannot be undone, what earlier operations
                kept of the memories goes as well, and the database is written anew (see :meth:`scrub`).
            detail: for the log. It stays: put nothing into it that is to be erased.

        Raises:
            UnknownMemoryError: one of them is not there; nothing was removed.
            EraseError: removed, but a reader kept the old bytes from being overwritten.
        """
        name = "erase" if secure else "remove"
        generation = self.apply(remove=ids, operation=name, detail=detail, secure=secure).generation
        if secure:
            self.scrub()
        return generation

    def update(
        self, rows: Sequence[Memory], *, operation: str = "update", detail: Mapping[str, Any] | None = None
    ) -> int:
        """Make stored memories what the rows say, found by their ids; return the generation."""
        return self.apply(update=rows, operation=operation, detail=detail).generation

    def apply(
        self,
        *,
        add: Sequence[Memory] = (),
        remove: Iterable[int] = (),
        update: Sequence[Memory] = (),
        operation: str,
        detail: Mapping[str, Any] | None = None,
        secure: bool = False,
    ) -> Applied:
        """Several changes as one operation: all of them or none, undone together.

        Raises:
            ValueError: a row to add has an id, one to update has none, or an id occurs twice.
            UnknownMemoryError: an id is not there.
        """
        detail = dict(detail or {})
        gone = check_ids(remove)
        slots = self._counters.slots
        new = prepare(add, slots)
        check_new(add)
        changed: dict[int, Prepared] = {}
        for row in update:
            prepared = prepare([row], slots)
            if row.id is None:
                raise ValueError("rows to update must have the id of a stored memory")
            if row.id in changed:
                raise ValueError(f"memory {row.id} occurs twice")
            changed[int(row.id)] = prepared
        if len(set(gone) | set(changed)) < len(gone) + len(changed):
            raise ValueError("an id occurs twice among the rows to remove and to update")

        def work(connection: sqlite3.Connection) -> Applied:
            return operations.apply(
                connection, self._counters, operation=operation, detail=detail, add=new, remove=gone,
                update=changed, secure=secure,
            )  # fmt: skip

        return self._write(work)

    def undo(self, generation: int) -> int:
        """Take an operation back, with the ids that the memories had; return the generation of doing so.

        Raises:
            UndoError: unknown, undone already, built upon since, trimmed or erased.
        """
        check_integer("generation", generation)
        return self._write(
            lambda connection: operations.undo(connection, self._counters, generation)
        ).generation

    def repose(
        self,
        ids: Iterable[int],
        positions: ArrayLike,
        yaws: ArrayLike,
        *,
        covariances: ArrayLike | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Give many memories new poses, as after a loop closure; return the generation.

        Args:
            ids: n of them, each once.
            positions: (n, 3) metres in the map.
            yaws: (n,) radians.
            covariances: (n, 3, 3) square metres; without them those of before stay.
            detail: for the log.

        Raises:
            ValueError: shapes differ, a number is not finite, or an id occurs twice.
            UnknownMemoryError: one is not there; nothing was changed.
        """
        known = id_array(ids)
        table = np.empty((len(known), poses.POSE))
        for name, values, shape in (
            ("positions", positions, (len(known), 3)), ("yaws", yaws, (len(known),)),
        ):  # fmt: skip
            array = np.asarray(values, dtype=np.float64)
            if array.shape != shape:
                raise ValueError(f"{name} do not fit {len(known)} ids: their shape is {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite")
            table[:, slice(0, 3) if name == "positions" else 3] = array
        order = np.argsort(known, kind="stable")
        known = known[order]
        if (known[1:] == known[:-1]).any():
            raise ValueError("an id occurs twice")
        if covariances is not None:
            table = np.hstack([table, poses.check_covariances(covariances, len(known))])
        table = table[order]

        def work(connection: sqlite3.Connection) -> Applied:
            return operations.repose(connection, self._counters, known, table, dict(detail or {}))

        return self._write(work).generation

    def touch(self, ids: Iterable[int], now_ns: int) -> None:
        """Count an access to each of the memories; not logged, no change of generation."""
        known, now = check_ids(ids), check_integer("now_ns", now_ns)
        self._write(lambda connection: operations.touch(connection, known, now))

    def get(self, ids: Iterable[int], *, vectors: bool = True) -> list[Memory]:
        """The memories in the order of the ids; without their vectors where these are not wanted.

        Raises:
            UnknownMemoryError: one is not there.
        """
        known = check_ids(ids)
        with self._read() as connection:
            return [image.memory() for image in tables.read_images(connection, known, vectors=vectors)]

    def ids(
        self, filter: Filter = EVERYTHING, *, order: Order = "id", limit: int | None = None
    ) -> NDArray[np.int64]:
        """Ids of the memories that match: rising, the newest or the oldest first (ties by id)."""
        with self._read() as connection:
            return reading.select_ids(connection, filter, order=order, limit=limit)

    def count(self, filter: Filter = EVERYTHING) -> int:
        """How many match, exactly."""
        with self._read() as connection:
            return reading.count_matches(connection, filter)

    def estimate(self, filter: Filter = EVERYTHING) -> int:
        """How many match, about, in a few milliseconds whatever the size."""
        with self._read() as connection:
            return reading.estimate_matches(connection, filter)

    def search_text(
        self, text: str, filter: Filter = EVERYTHING, *, limit: int = 100, any_word: bool = False
    ) -> TextHits:
        """The memories whose label and caption fit the words best, all of them or any."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        with self._read() as connection:
            return reading.search_words(connection, text, filter, limit=limit, any_word=any_word)

    def maps(self) -> list[str]:
        """The maps that memories are in."""
        with self._read() as connection:
            return reading.read_maps(connection)

    def slots(self) -> dict[str, int]:
        """Length of the vectors by the name of their encoder."""
        with self._read() as connection:
            return {name: slot.dim for name, slot in tables.read_slots(connection).items()}

    def vectors(self, ids: Iterable[int], slot: str = DEFAULT_SLOT) -> Vectors:
        """Vectors of those of the ids that have one, in their order; none for an unknown encoder."""
        known = check_ids(ids)
        with self._read() as connection:
            found = tables.read_slots(connection).get(slot)
            return (
                tables.as_vectors([], [], 0)
                if found is None
                else tables.read_vectors(connection, known, found)
            )

    def scan_vectors(self, after_id: int = 0, limit: int = 65536, slot: str = DEFAULT_SLOT) -> Vectors:
        """The next vectors in the order of their ids, for building an index; empty at the end."""
        with self._read() as connection:
            found = tables.read_slots(connection).get(slot)
            if found is None:
                return tables.as_vectors([], [], 0)
            return reading.scan_vectors(connection, found, after_id=after_id, limit=limit)

    def scan_columns(self, after_id: int = 0, limit: int = 65536) -> Columns:
        """The next memories' columns in the order of their ids; empty at the end."""
        with self._read() as connection:
            return reading.scan_columns(connection, after_id=after_id, limit=limit)

    def columns(self, ids: Iterable[int]) -> Columns:
        """Columns of those of the ids that are there, by rising id."""
        known = check_ids(ids)
        with self._read() as connection:
            return reading.scan_columns(connection, ids=known)

    def poses(self, ids: Iterable[int]) -> NDArray[np.float64]:
        """(n, 4) float64 of the ids: x, y, z in metres and yaw in radians; NaN where there is no memory."""
        known = id_array(ids)
        with self._read() as connection:
            return poses.read(connection, known)

    @property
    def generation(self) -> int:
        """Number of the last operation; caches compare it."""
        with self._read() as connection:
            return int(connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0])

    def changes(self, after_generation: int) -> Changes:
        """What differs from an earlier generation."""
        check_integer("after_generation", after_generation)
        with self._read() as connection:
            return journal.read_changes(connection, after_generation)

    def log(self, after_generation: int = 0, *, limit: int | None = None) -> list[LogEntry]:
        """Operations after a generation, in order."""
        with self._read() as connection:
            return journal.read_entries(connection, after=after_generation, limit=limit)

    def history(self, id: int) -> list[LogEntry]:
        """Operations that touched a memory, there or gone."""
        check_integer("id", id)
        with self._read() as connection:
            return journal.read_history(connection, id)

    def before(self, generation: int) -> list[Memory]:
        """What an operation removed or changed, as it was before, unless it was erased or trimmed since."""
        check_integer("generation", generation)
        with self._read() as connection:
            found = journal.read_before(connection, generation)
            return [image.memory() for _, _, image in found if image is not None]

    def trim_log(self, generation: int) -> None:
        """Drop what is kept for undoing operations up to a generation; the room is used again."""
        check_integer("generation", generation)
        self._write(
            lambda connection: operations.trim_log(connection, min(generation, self._counters.generation))
        )

    def scrub(self) -> None:
        """Write the database anew so that nothing of removed memories stays in the files.

        Raises:
            EraseError: a reader, here or in another process, was in the way; call it again.
        """
        writer = self._check_writer()
        with self._group.lock, translated(self._file):
            erase.scrub(writer)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database file, as far as readers let it."""
        writer = self._check_writer()
        with self._group.lock, translated(self._file):
            erase.checkpoint(writer)

    def backup(self, folder: str | os.PathLike[str], progress: Progress | None = None) -> Path:
        """Copy the store as it is now into another folder, while it is used; return the file.

        Raises:
            FileExistsError: there is a store already.
        """
        with self._read() as connection:
            return copy_store(connection, Path(folder).absolute(), progress)

    def check(self, repair: bool = False) -> integrity.CheckReport:
        """Look for damage; with ``repair`` rebuild the indexes and drop what belongs to no row."""
        if self.readonly:
            if repair:
                self._check_writer()
            with self._read() as connection:
                return self._report(integrity.find_problems(connection, writer=False), connection)
        writer = self._check_writer()
        with self._group.lock, translated(self._file):
            problems = integrity.find_problems(writer, writer=True)
            if not (repair and problems):
                return self._report(problems, writer)
            done = self._group.run_alone(lambda connection: integrity.repair(connection, self._counters))
            return self._report(integrity.find_problems(writer, writer=True), writer, done)

    def stats(self) -> Stats:
        """Sizes of everything."""
        with self._read() as connection:
            counters = Counters()
            counters.read(connection)
            by_map = dict(
                connection.execute("SELECT map_id, count(*) FROM memory GROUP BY map_id").fetchall()
            )
            by_kind = dict(connection.execute("SELECT kind, count(*) FROM memory GROUP BY kind").fetchall())
            sql = f"SELECT key % {SLOTS}, count(*) FROM vector GROUP BY 1"
            counts = dict(connection.execute(sql).fetchall())
            page = connection.execute("PRAGMA page_size").fetchone()[0]
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        log = Path(f"{self._file}-wal")
        return Stats(
            memories=sum(by_kind.values()),
            by_map=by_map,
            by_kind=by_kind,
            vectors={name: counts.get(slot.number, 0) for name, slot in counters.slots.items()},
            generation=counters.generation,
            next_id=counters.next_id,
            file_bytes=self._file.stat().st_size,
            log_bytes=log.stat().st_size if log.exists() else 0,
            free_bytes=page * free,
        )

    def _add(self, addition: Addition) -> Applied:
        self._check_writer()
        with translated(self._file):
            return self._group.run_together(addition)

    def _write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        self._check_writer()
        with translated(self._file):
            return self._group.run(work)

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

    def _check_writer(self) -> sqlite3.Connection:
        self._check_usable()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self.folder} was opened for reading only")
        return self._writer

    @staticmethod
    def _report(
        problems: Sequence[str], connection: sqlite3.Connection, done: Sequence[str] = ()
    ) -> integrity.CheckReport:
        try:
            memories = int(connection.execute("SELECT count(*) FROM memory").fetchone()[0])
        except sqlite3.DatabaseError:
            memories = 0
        return integrity.CheckReport(memories, tuple(problems), tuple(done))
