"""Database of a store, the source of truth; caches and indexes can be rebuilt from it.

The operations are the same for every engine (:mod:`memory.persistence.engine`): a SQLite file
(:mod:`memory.persistence.sqlite`) or a PostgreSQL server (:mod:`memory.persistence.postgres`).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from memory.areas import Area
from memory.merging.motion import Motion
from memory.persistence import meta, poses
from memory.persistence.ids import check_ids
from memory.persistence.log import journal, operations
from memory.persistence.log.areas import write_area
from memory.persistence.log.batches import Batch
from memory.persistence.log.observations import Observations, PendingObservations
from memory.persistence.log.operations import Addition, OperationResult, TrimReport
from memory.persistence.log.reception import PeerState, Receipt, receive
from memory.persistence.log.trust import check_trust, write_trust
from memory.persistence.queries import Queries
from memory.persistence.reports import CheckReport, Progress
from memory.persistence.rows import PreparedRows, check_new, prepare
from memory.persistence.sql import Connection
from memory.types import STATES, Memory, State, check_choice, check_integer


class Database(Queries):
    """Tables of a store; :func:`memory.persistence.opening.open_database` opens them.

    A handle may be used from many threads: writes queue and share commits, and each read sees one moment. A
    handle does not survive ``os.fork``.
    """

    def add(
        self, rows: Sequence[Memory], *, operation: str = "add", detail: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Add memories, see :meth:`memory.store.MemoryStore.add`.

        Without memories nothing is logged, unless there is a ``detail``.
        """
        prepared = prepare(rows, self._counters.slots)
        check_new(rows)
        writer = self._check_writer()
        if not rows and not detail:
            return []  # Nothing to log.
        with self._translate_errors():
            ids = writer.run_together(Addition(prepared, operation, dict(detail or {}))).ids
        self._tidy_after(len(rows))
        return ids

    def remove(
        self, ids: Iterable[int], *, secure: bool = False, detail: Mapping[str, Any] | None = None
    ) -> int:
        """Remove memories and return the generation.

        Args:
            secure: erase them from the files too. The operation cannot be undone, the log forgets them, and
                the database is rewritten (see :meth:`scrub`).
            detail: detail for the log, which stays; it must not contain anything to erase.

        Raises:
            UnknownMemoryError: an id does not exist; nothing was removed.
            EraseError: removed, but a reader or lack of space kept the old bytes in the files.
        """
        name = "erase" if secure else "remove"
        generation = self.apply(remove=ids, operation=name, detail=detail, secure=secure).generation
        if secure:
            self.scrub()
        return generation

    def update(
        self, rows: Sequence[Memory], *, operation: str = "update", detail: Mapping[str, Any] | None = None
    ) -> int:
        """Replace stored memories, identified by their ids, and return the generation."""
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
        """Apply several changes as one operation, which is undone as a whole.

        Args:
            add: memories without ids.
            remove: ids.
            update: memories with ids.
            secure: see :meth:`remove`.
            seen: observations to count on existing memories, by id.

        Raises:
            ValueError: a memory to add has an id, one to update has none, or an id is listed twice.
            UnknownMemoryError: an id does not exist.
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
                raise ValueError("a memory to update needs the id of a stored memory")
            if row.id in changed:
                raise ValueError(f"memory {row.id} is listed twice")
            changed[int(row.id)] = prepared
        if both := sorted(set(gone) & set(changed)):
            raise ValueError(f"memory {both[0]} is listed to be removed and to be updated")
        if len(set(gone)) < len(gone):
            raise ValueError("an id to remove is listed twice")

        def work(connection: Connection) -> OperationResult:
            return operations.apply(
                connection, self._counters, operation=operation, detail=detail, add=new, remove=gone,
                update=changed, secure=secure, seen=seen,
            )  # fmt: skip

        return self._write(work)

    def mark(self, ids: Iterable[int], state: State, *, detail: Mapping[str, Any] | None = None) -> int:
        """Set the state of memories and return the generation; the log keeps the old states.

        Raises:
            UnknownMemoryError: an id does not exist; nothing was changed.
        """
        known = check_ids(ids)
        check_choice("state", state, STATES)
        marked = dict(detail or {})
        return self._write(
            lambda connection: operations.mark(connection, self._counters, known, state, marked)
        ).generation

    def see(self, sights: Observations) -> None:
        """Count observations of existing memories; they are written with the next commit or :meth:`flush`.

        Until then nobody reads them, and they are lost if the process is killed. The log has them as
        ``seen``, just before the operation of that commit. Undoing earlier operations does not change the
        counts. Observations of memories that are gone by then are dropped.
        """
        self._check_writer().pending.add(sights)

    @property
    def pending(self) -> PendingObservations:
        """Observations that wait for a commit."""
        return self._check_writer().pending

    def flush(self) -> None:
        """Write the pending observations; return once they are durable."""
        if len(self._check_writer().pending):
            self._write(lambda connection: None)

    def keep_settings(self, text: str) -> None:
        """Store the settings; not logged, no change of generation."""
        self._write(lambda connection: meta.write(connection, meta.SETTINGS, text))

    def undo(self, generation: int) -> int:
        """Undo an operation, see :meth:`memory.store.MemoryStore.undo`; memories get their old ids back."""
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
        """Set poses, see :meth:`memory.store.MemoryStore.repose`; ``detail`` is for the log."""
        known, table = poses.check_poses(ids, positions, yaws, covariances)

        def work(connection: Connection) -> OperationResult:
            return operations.repose(connection, self._counters, known, table, dict(detail or {}))

        generation = self._write(work).generation
        self._tidy_after(len(known))
        return generation

    def align(
        self, robot: str, map_id: str, frame: Motion, *, detail: Mapping[str, Any] | None = None
    ) -> OperationResult:
        """Align a robot's map, see :func:`memory.persistence.log.operations.align`."""
        applied = self._write(
            lambda connection: operations.align(
                connection, self._counters, robot, map_id, frame, dict(detail or {})
            )
        )
        self._tidy_after(len(applied.ids))
        return applied

    def trust(self, robot: str, trust: float, *, detail: Mapping[str, Any] | None = None) -> int:
        """Set the trust of a robot, see :meth:`memory.store.MemoryStore.trust`."""
        name, number = check_trust(robot, trust)
        logged = {**(detail or {}), "robot": name, "trust": number}
        return self._write(lambda connection: write_trust(connection, self._counters, logged)).generation

    def set_area(self, area: Area, *, origin: Mapping[str, Any] | None = None) -> int:
        """Set an area in place of one of the same name and map, and return the generation.

        ``origin`` names the operation of another store that set it.
        """
        return self._log_area(area.to_json(), origin)

    def remove_area(self, area: Area, *, origin: Mapping[str, Any] | None = None) -> int:
        """Remove an area and return the generation; ``origin`` as in :meth:`set_area`."""
        return self._log_area({"name": area.name, "map": area.map_id, "removed": True}, origin)

    def _log_area(self, detail: Mapping[str, Any], origin: Mapping[str, Any] | None) -> int:
        logged = {**detail, **({} if origin is None else {"from": origin})}
        return self._write(lambda connection: write_area(connection, self._counters, logged)).generation

    def receive(self, batch: Batch, known: PeerState, *, may_undo: bool = True) -> Receipt:
        """Store a batch, see :func:`memory.persistence.log.reception.receive`; return once it is durable."""
        return self._write(
            lambda connection: receive(connection, self._counters, known, batch, may_undo=may_undo)
        )

    def touch(self, counts: Mapping[int, int], now_ns: int) -> None:
        """Count accesses by id; not logged, no change of generation."""
        known = dict(zip(check_ids(counts), counts.values(), strict=True))
        now = check_integer("now_ns", now_ns)
        self._write(lambda connection: operations.touch(connection, known, now))

    @property
    def busy(self) -> bool:
        """True if a write is in progress, so that the next one has to wait."""
        return not self.readonly and self._check_writer().busy

    def redact(self, ids: Iterable[int]) -> None:
        """Erase earlier images of memories from the log; operations on them can no longer be undone.

        The log keeps the ids. Old bytes may stay in the files until :meth:`scrub`. No change of generation.
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
        """Drop the undo data of old operations and free its space.

        The last operation is ``generation``, or by default that of
        :func:`memory.persistence.log.operations.last_trimmable`.
        """
        last = None if generation is None else check_integer("generation", generation)

        def work(connection: Connection) -> TrimReport:
            end = last
            if end is None:
                end = operations.last_trimmable(connection, before_ns, keep_operations, until)
            return operations.trim_log(connection, min(end, self._counters.generation))

        return self._write(work)

    def _tidy_after(self, rows: int) -> None:
        """Clean up after an operation on so many memories; each engine decides."""

    def begin_many(self) -> bool:
        """Prepare to add very many memories; return True if that leaves their vectors without an index."""
        return False

    @abstractmethod
    def tidy(self) -> bool:
        """Free what is no longer needed, without waiting; return True if somebody was in the way."""

    @abstractmethod
    def scrub(self) -> None:
        """Rewrite the database so that nothing of removed memories stays in it.

        Raises:
            EraseError: a reader or lack of space was in the way. Call it again.
        """

    @abstractmethod
    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write a backup, see :meth:`memory.store.MemoryStore.backup`."""

    @abstractmethod
    def check(self, repair: bool = False) -> CheckReport:
        """Check the store, see :meth:`memory.store.MemoryStore.check`."""

    @abstractmethod
    def look(self) -> CheckReport:
        """Check as far as a reader can while others write."""
