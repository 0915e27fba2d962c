"""The database of a store: what is in it is the truth, everything else can be rebuilt from it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from memory.persistence import checksums, erase, integrity, journal, lost, meta, operations, poses, repairing
from memory.persistence.connection import translated
from memory.persistence.copying import Progress, copy_store
from memory.persistence.ids import check_ids
from memory.persistence.operations import Addition, Applied, Trimmed
from memory.persistence.queries import EVERYTHING, SETTINGS, Queries
from memory.persistence.records import Prepared, prepare
from memory.persistence.sights import Pending, Sights
from memory.persistence.statistics import Stats
from memory.persistence.tables import check_new
from memory.persistence.writer import Writer
from memory.types import STATES, Memory, State, check_choice, check_integer

__all__ = ["EVERYTHING", "Database", "Stats", "Trimmed"]

#: An operation on so many memories cuts the write-ahead log afterwards.
LARGE = 10_000


class Database(Queries):
    """One SQLite file in the folder of a store; open it with :meth:`open`.

    One process writes, any number read at the same time. A handle may be used from many threads: writes queue
    for the one connection that writes and share commits, reads take a connection each from a pool and see
    one moment. A handle does not survive ``os.fork``.

    Attributes:
        folder: of the store.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
    """

    def add(
        self, rows: Sequence[Memory], *, operation: str = "add", detail: Mapping[str, Any] | None = None
    ) -> list[int]:
        """See :meth:`memory.store.MemoryStore.add`.

        Nothing is logged where there is nothing to add, unless ``detail`` says why.
        """
        prepared = prepare(rows, self._counters.slots)
        check_new(rows)
        writer = self._check_writer()
        if not rows and not detail:
            return []  # Nothing happened: there is nothing to log.
        with translated(self._file):
            ids = writer.run_together(Addition(prepared, operation, dict(detail or {}))).ids
        self._tidy_after(len(rows))
        return ids

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
            EraseError: removed, but a reader, or no room, kept the old bytes from being overwritten.
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
        seen: Sights | None = None,
    ) -> Applied:
        """Several changes as one operation: all of them or none, undone together.

        Args:
            add: without ids.
            remove: ids.
            update: with ids.
            operation: its name in the log.
            detail: for the log.
            secure: see :meth:`remove`.
            seen: sights to count on memories that stand for them, by id.

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
                update=changed, secure=secure, seen=seen,
            )  # fmt: skip

        return self._write(work)

    def mark(self, ids: Iterable[int], state: State, *, detail: Mapping[str, Any] | None = None) -> int:
        """Give memories a state; return the generation. The log has the state that each had.

        Raises:
            UnknownMemoryError: one of them is not there; nothing was changed.
        """
        known = check_ids(ids)
        check_choice("state", state, STATES)
        told = dict(detail or {})
        return self._write(
            lambda connection: operations.mark(connection, self._counters, known, state, told)
        ).generation

    def see(self, sights: Sights) -> None:
        """Count sights on memories that stand for them: on the disk with the next commit, or :meth:`flush`.

        Until then they are lost if the process is killed, and nobody reads them. They are logged as ``seen``,
        just before the operation that the commit is for; operations before can be taken back and leave the
        counts alone. Of memories that are gone by then nothing is counted.
        """
        self._check_writer().pending.add(sights)

    @property
    def pending(self) -> Pending:
        """Sights that wait for a commit."""
        return self._check_writer().pending

    def flush(self) -> None:
        """Write what waits for a commit; returns once it is on the disk. Nothing where nothing waits."""
        if len(self._check_writer().pending):
            self._write(lambda connection: None)

    def keep_settings(self, text: str) -> None:
        """Keep a text beside the memories; not logged, no change of generation."""
        self._write(lambda connection: meta.write(connection, SETTINGS, text))

    def undo(self, generation: int) -> int:
        """See :meth:`memory.store.MemoryStore.undo`; the memories have the ids again that they had."""
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
        """See :meth:`memory.store.MemoryStore.repose`; ``detail`` is for the log."""
        known, table = poses.check_poses(ids, positions, yaws, covariances)

        def work(connection: sqlite3.Connection) -> Applied:
            return operations.repose(connection, self._counters, known, table, dict(detail or {}))

        generation = self._write(work).generation
        self._tidy_after(len(known))
        return generation

    def touch(self, ids: Iterable[int], now_ns: int) -> None:
        """Count an access to each of the memories; not logged, no change of generation."""
        known, now = check_ids(ids), check_integer("now_ns", now_ns)
        self._write(lambda connection: operations.touch(connection, known, now))

    @property
    def busy(self) -> bool:
        """Whether something is being written just now: what would be written next has to wait."""
        return self._writer is not None and self._writer.busy

    def redact(self, ids: Iterable[int]) -> None:
        """Forget what memories were before: the log keeps their ids, and operations on them cannot be undone.

        Old bytes may stay in the files until :meth:`scrub`. No change of generation.
        """
        known = check_ids(ids)
        self._write(lambda connection: journal.redact(connection, known))

    def trim_log(
        self,
        generation: int | None = None,
        *,
        before_ns: int | None = None,
        keep_operations: int = 0,
        until: int = 2**62,
    ) -> Trimmed:
        """Drop what is kept for undoing old operations, up to a generation; without one, up to that of
        :func:`memory.persistence.operations.last_trimmable`. The room is used again.
        """
        last = None if generation is None else check_integer("generation", generation)

        def work(connection: sqlite3.Connection) -> Trimmed:
            end = last
            if end is None:
                end = operations.last_trimmable(connection, before_ns, keep_operations, until)
            return operations.trim_log(connection, min(end, self._counters.generation))

        return self._write(work)

    def tidy(self) -> bool:
        """Cut the write-ahead log to nothing unless a reader needs it, without waiting; whether one did."""
        with self._alone() as writer:
            return erase.tidy(writer.connection)

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
            erase.scrub(writer.connection)

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """See :func:`memory.persistence.copying.copy_store`."""
        with self._read() as connection:
            return copy_store(connection, Path(folder).absolute(), progress, beside)

    def check(self, repair: bool = False) -> integrity.CheckReport:
        """See :meth:`memory.store.MemoryStore.check`."""
        if self.readonly and not repair:
            with self._read() as connection:
                return integrity.look(connection, self.folder)
        with self._alone() as writer:
            problems = integrity.find_problems(writer.connection, self.folder, writer=True)
            if not (repair and problems):
                return integrity.report(writer.connection, integrity.flat(problems))
            return self._repaired(writer, problems)

    def _repaired(self, writer: Writer, problems: dict[str, list[str]]) -> integrity.CheckReport:
        """Repair, and look again."""
        connection = writer.connection
        checksums.complete(connection)  # Rows without one would count as damaged.
        done: list[str] = []
        gone: list[str] = []
        said = meta.read(connection, lost.NOTE) if "rows" not in problems else None
        if said is not None:
            writer.run_alone(lambda connection: meta.delete(connection, lost.NOTE))
            gone.append(str(said))
            problems = integrity.find_problems(connection, self.folder, writer=True)
        if problems and set(problems) <= integrity.DERIVED:
            done += writer.run_alone(lambda connection: integrity.repair(connection, self._counters))
            if "erasure" in problems:
                erase.scrub(connection)
            if "settings" in problems:
                done.append(repairing.mend_settings(self.folder, self.settings))
            problems = integrity.find_problems(connection, self.folder, writer=True)
        if problems:
            salvaged, told = repairing.renew(connection, self._file, writer.came_to())
            writer.renewed()
            done += told
            gone += salvaged.lost
            problems = integrity.find_problems(connection, self.folder, writer=True)
        return integrity.report(connection, integrity.flat(problems), done, gone)

    @classmethod
    def repair(cls, folder: str | os.PathLike[str]) -> integrity.CheckReport:
        """Repair a store that cannot be opened, and look at what was made of it.

        Nobody may have it open. The damaged files are kept beside the new ones.

        Raises:
            NotAStoreError: there is no store.
            CorruptStoreError: not one row of a store is left.
            StoreLockedError: another process writes.
        """
        path = Path(folder).absolute()
        found = repairing.repair_files(path)
        with cls.open(path, create=False) as database:
            now = database.check()
        return integrity.CheckReport(now.memories, now.problems, found.repaired, found.lost)
