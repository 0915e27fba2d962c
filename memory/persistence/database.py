"""The database of a store: what is in it is the truth, everything else can be rebuilt from it.

What is done is the same for every engine, see :mod:`memory.persistence.engine`: a file of SQLite
(:mod:`memory.persistence.sqlite`) or a PostgreSQL server (:mod:`memory.persistence.postgres`).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from memory.merging.motion import Motion
from memory.persistence import meta, poses
from memory.persistence.ids import check_ids
from memory.persistence.log import journal, operations
from memory.persistence.log.batches import Batch
from memory.persistence.log.observations import Observations, PendingObservations
from memory.persistence.log.operations import Addition, OperationResult, TrimReport
from memory.persistence.log.reception import PeerState, Receipt, receive
from memory.persistence.log.trust import check_trust, trust_in
from memory.persistence.queries import Queries
from memory.persistence.reports import CheckReport, Progress
from memory.persistence.rows import PreparedRows, check_new, prepare
from memory.persistence.sql import Connection
from memory.types import STATES, Memory, State, check_choice, check_integer


class Database(Queries):
    """A store's tables; :func:`memory.persistence.opening.open_database` opens one.

    A handle may be used from many threads: writes queue and share commits, reads see one moment each. It does
    not survive ``os.fork``.
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
        with self._translated():
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
        seen: Observations | None = None,
    ) -> OperationResult:
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
        changed: dict[int, PreparedRows] = {}
        for row in update:
            prepared = prepare([row], slots)
            if row.id is None:
                raise ValueError("rows to update must have the id of a stored memory")
            if row.id in changed:
                raise ValueError(f"memory {row.id} occurs twice")
            changed[int(row.id)] = prepared
        if len(set(gone) | set(changed)) < len(gone) + len(changed):
            raise ValueError("an id occurs twice among the rows to remove and to update")

        def work(connection: Connection) -> OperationResult:
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

    def see(self, sights: Observations) -> None:
        """Count sights on memories that stand for them: on the disk with the next commit, or :meth:`flush`.

        Until then they are lost if the process is killed, and nobody reads them. They are logged as ``seen``,
        just before the operation that the commit is for; operations before can be taken back and leave the
        counts alone. Of memories that are gone by then nothing is counted.
        """
        self._check_writer().pending.add(sights)

    @property
    def pending(self) -> PendingObservations:
        """Sights that wait for a commit."""
        return self._check_writer().pending

    def flush(self) -> None:
        """Write what waits for a commit; returns once it is on the disk. Nothing where nothing waits."""
        if len(self._check_writer().pending):
            self._write(lambda connection: None)

    def keep_settings(self, text: str) -> None:
        """Keep a text beside the memories; not logged, no change of generation."""
        self._write(lambda connection: meta.write(connection, meta.SETTINGS, text))

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

        def work(connection: Connection) -> OperationResult:
            return operations.repose(connection, self._counters, known, table, dict(detail or {}))

        generation = self._write(work).generation
        self._tidy_after(len(known))
        return generation

    def align(
        self, robot: str, map_id: str, frame: Motion, *, detail: Mapping[str, Any] | None = None
    ) -> OperationResult:
        """See :func:`memory.persistence.log.operations.align`."""
        applied = self._write(
            lambda connection: operations.align(
                connection, self._counters, robot, map_id, frame, dict(detail or {})
            )
        )
        self._tidy_after(len(applied.ids))
        return applied

    def trust(self, robot: str, trust: float, *, detail: Mapping[str, Any] | None = None) -> int:
        """See :meth:`memory.store.MemoryStore.trust`; ``detail`` is for the log."""
        name, number = check_trust(robot, trust)
        told = {**(detail or {}), "robot": name, "trust": number}
        return self._write(lambda connection: trust_in(connection, self._counters, told)).generation

    def receive(self, batch: Batch, known: PeerState, *, may_undo: bool = True) -> Receipt:
        """See :func:`memory.persistence.log.reception.receive`; returns when it is on the disk."""
        return self._write(
            lambda connection: receive(connection, self._counters, known, batch, may_undo=may_undo)
        )

    def touch(self, counts: Mapping[int, int], now_ns: int) -> None:
        """Count accesses to memories, so many by id; not logged, no change of generation."""
        known = dict(zip(check_ids(counts), counts.values(), strict=True))
        now = check_integer("now_ns", now_ns)
        self._write(lambda connection: operations.touch(connection, known, now))

    @property
    def busy(self) -> bool:
        """Whether something is being written just now: what would be written next has to wait."""
        return not self.readonly and self._check_writer().busy

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
    ) -> TrimReport:
        """Drop what is kept for undoing old operations, up to a generation; without one, up to that of
        :func:`memory.persistence.log.operations.last_trimmable`. The room is used again.
        """
        last = None if generation is None else check_integer("generation", generation)

        def work(connection: Connection) -> TrimReport:
            end = last
            if end is None:
                end = operations.last_trimmable(connection, before_ns, keep_operations, until)
            return operations.trim_log(connection, min(end, self._counters.generation))

        return self._write(work)

    def _tidy_after(self, rows: int) -> None:
        """What an engine does after an operation on so many memories."""

    @abstractmethod
    def tidy(self) -> bool:
        """Give back what is not needed any more, without waiting; whether somebody was in the way."""

    @abstractmethod
    def scrub(self) -> None:
        """Write the database anew so that nothing of removed memories stays in it.

        Raises:
            EraseError: somebody, or no room, was in the way; call it again.
        """

    @abstractmethod
    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """See :meth:`memory.store.MemoryStore.backup`."""

    @abstractmethod
    def check(self, repair: bool = False) -> CheckReport:
        """See :meth:`memory.store.MemoryStore.check`."""

    @abstractmethod
    def look(self) -> CheckReport:
        """What a reader can say of damage while others write."""
