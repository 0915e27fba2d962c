"""The store: what is remembered, durably, and what is made of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from memory.config import FILE_NAME as CONFIG_NAME
from memory.config import StoreConfig, is_empty
from memory.index.kinds import KINDS
from memory.merging.alignment import AlignOptions
from memory.merging.motion import Motion
from memory.observe.observer import Kept, Observed, Observer
from memory.persistence.database import Database
from memory.persistence.log.operations import TrimReport
from memory.persistence.opening import open_database
from memory.persistence.reports import CheckReport
from memory.search.reader import INDEX_FOLDER, StoreReader
from memory.types import Memory, State
from memory.upkeep import map_alignment as aligning
from memory.upkeep.care import Care, Consolidated
from memory.upkeep.map_alignment import AlignmentResult
from memory.wording import stem

__all__ = ["Consolidated", "Kept", "MemoryStore", "Observed", "TrimReport"]


class MemoryStore(StoreReader):
    """A memory in a folder; open it with :meth:`open`.

    Whatever a method says was stored is on the disk when it returns. One process writes, any number read; a
    handle may be used from many threads.

    Attributes:
        folder: of the store.
        config: see :class:`StoreConfig`.
        dim: length of the default vectors.
    """

    def __init__(self, database: Database, config: StoreConfig) -> None:
        """Used by :meth:`open`."""
        super().__init__(database, config)
        self._observer = Observer(database, self._retriever, config)
        self._care = Care(database, self._retriever, self._observer, config, self.folder / INDEX_FOLDER)
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        dim: int | None = None,
        readonly: bool = False,
        create: bool = True,
        config: StoreConfig | None = None,
    ) -> MemoryStore:
        """Open a store, or make one.

        Args:
            path: the folder; or the address of a database of a PostgreSQL server with pgvector,
                ``"postgresql://user:password@host:port/database"``, where any number of processes write.
            dim: length of the vectors; needed for a new store, checked for an old one.
            readonly: never change anything; may be while another process writes.
            create: make the store where there is none.
            config: settings, which are kept; without them those of the folder, or of the database where the
                folder has none.

        Raises:
            StoreError: one of its kinds, see :mod:`memory.errors`.
            DimensionError: the store has vectors of another length.
            IndexUnavailableError: the index of the settings given needs a package or a GPU that is not here.
            ValueError: the settings in the folder are not right.
        """
        if config is not None:
            # What is asked for by name does not wait for the first search, and leaves no store behind.
            KINDS[config.index].require()
        database = open_database(path, dim=dim, readonly=readonly, create=create)
        try:
            told = config is not None
            if config is None:
                config = _kept(database)
            if not readonly:
                _keep(database, config, told)
            return cls(database, config)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Write the indexes for the next start, and close. Nothing is lost without it but how often the last
        few thousand answers were given.

        Raises:
            StoreError, OSError: the caches could not be written, as on a full disk; the store is closed.
        """
        if self._closed:
            return
        self._closed = True
        self._retriever.indexes.stop()
        self._accesses.wait()
        try:
            if not self._database.readonly:
                self._database.flush()
                self._accesses.write()
                self._retriever.indexes.save(self.folder / INDEX_FOLDER)
                self._observer.save()
        finally:
            self._database.close()

    def __enter__(self) -> MemoryStore:
        """The store."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def add(self, memories: Sequence[Memory]) -> list[int]:
        """Store memories; returns their ids once they are on the disk. All of them or none.

        Threads that add at the same time share a commit.

        Raises:
            ValueError, TypeError, DimensionError: a memory is not right; nothing was stored.
            StoreFullError: no room; nothing was stored.
        """
        return self._database.add(memories)

    def observe(self, memories: Sequence[Memory]) -> list[Kept]:
        """Score observations and store only those that matter, durably.

        Importance (:mod:`memory.observe.importance`) uses the similarity to the nearest memory of the same
        map; without a vector, the distance to the nearest memory of the same kind and label. Observations of
        the batch that are kept count for those after them, as if each came alone. The reservoir keeps the
        best share of each place and time, every marked one and every one that is unlike what is kept there;
        what a better one displaces is forgotten and can be undone.

        What is not kept is counted on the memory that stands for it (``Kept.like``): count, visits, first and
        last seen are those of all its sights; ``time_ns`` stays that of the sight that was kept. Of a batch
        that stores something this is on the disk as well when it returns. Otherwise the counts wait for the
        next commit, :meth:`flush` or :meth:`close`, at most ten minutes of the robot's clock: a process that
        is killed before loses them, and no memory.

        Returns:
            What became of each, in their order.

        Raises:
            ValueError, TypeError, DimensionError: a memory is not right, or has an id; nothing was stored.
            StoreFullError: no room; nothing was stored.
        """
        return self.observe_logged(memories).kept

    def observe_logged(
        self, memories: Sequence[Memory], *, detail: Mapping[str, Any] | None = None
    ) -> Observed:
        """The same as :meth:`observe`, telling more.

        Args:
            memories: the observations.
            detail: entries for the log, which then has the operation even where nothing changed. They stay:
                put nothing into them that is to be erased.
        """
        return self._observer.observe(memories, detail)

    def flush(self) -> None:
        """Write the counts that wait for a commit; returns once they are on the disk."""
        self._database.flush()

    def forget(self, ids: Iterable[int], *, secure: bool = False, reason: str = "asked for") -> int:
        """Forget memories; returns the operation, which :meth:`undo` takes back.

        Args:
            ids: of the memories.
            secure: erase them from the files for good, the indexes too. This cannot be undone.
            reason: for :meth:`explain`. It stays: put nothing into it that is to be erased.

        Raises:
            UnknownMemoryError: one is not there; nothing was forgotten.
            EraseError: forgotten, but a reader, or no room for a second copy of the database, kept the old
                bytes from being overwritten; that is tried again when the store is next opened for writing.
        """
        try:
            return self._care.forget(ids, secure=secure, reason=reason)
        finally:
            if secure:
                self._attention.forget()
                stem.cache_clear()

    def mark(
        self, ids: Iterable[int], state: State = "gone", *, at_ns: int | None = None, why: str = ""
    ) -> int:
        """Say whether things are still where they were; returns the operation, which :meth:`undo` takes back.

        What is gone, or has moved, stays as history: it is found, and answers say so. The next sight there is
        new to :meth:`observe`; what :meth:`consolidate` makes of the two is told in :mod:`memory.merging`.

        Args:
            ids: of the memories; nothing is logged where there are none.
            state: ``"present"``, ``"gone"``, ``"moved"`` or ``"unknown"``.
            at_ns: when that was found, by the robot's clock; by default when the newest memory is of, or when
                one of these was last seen if that is later.
            why: for :meth:`explain`. It stays: put nothing into it that is to be erased.

        Returns:
            The operation; the last one where there are no ids.

        Raises:
            UnknownMemoryError: one is not there; nothing was changed.
            ValueError: no such state, or one was seen after it is said to be gone.
        """
        return self._care.mark(ids, state, at_ns=at_ns, why=why, newest_ns=self.newest_ns)

    def trim(self, *, keep_ns: int | None = None, keep_operations: int | None = None) -> TrimReport:
        """Drop what old operations keep for their undoing; what they did, and when, stays in the log.

        An operation stays undoable where it is younger than ``keep_ns``, or among the last
        ``keep_operations``, or of this session. The room is used again, the file does not shrink.

        Args:
            keep_ns: nanoseconds, by the computer's clock; without it, age keeps nothing.
            keep_operations: how many; without it, only age counts.

        Raises:
            ValueError: neither is given, or one is negative.
        """
        return self._care.trim(keep_ns=keep_ns, keep_operations=keep_operations)

    def consolidate(
        self, *, now_ns: int | None = None, progress: Callable[[str, int, int], None] | None = None
    ) -> Consolidated:
        """Merge memories of the same thing, then forget what exceeds the capacity of a map.

        Each merge and the forgetting are operations of their own that can be undone. Then the log is trimmed
        as ``StoreConfig.undo_keep_s`` and ``undo_keep_operations`` say, see :meth:`trim`. A server is then
        settled, see :meth:`settle`.

        Args:
            now_ns: the time that freshness is judged at; by default the computer's.
            progress: called with what is done, how many are done and of how many.
        """
        now = time.time_ns() if now_ns is None else now_ns
        done = self._care.consolidate(now, self._accesses.write, progress)
        if self._database.shared:
            self._retriever.settle()
        return done

    def undo(self, generation: int) -> int:
        """Take an operation back; returns the operation of doing so.

        Raises:
            UndoError: unknown, undone already, built upon since, or erased.
        """
        return self._database.undo(generation)

    def repose(
        self,
        ids: Iterable[int],
        positions: ArrayLike,
        yaws: ArrayLike,
        *,
        covariances: ArrayLike | None = None,
        reason: str = "",
    ) -> int:
        """Give memories new poses, as after a loop closure; returns the operation.

        Args:
            ids: n of them.
            positions: (n, 3) metres in the map.
            yaws: (n,) radians.
            covariances: (n, 3, 3) square metres, or those of before.
            reason: for :meth:`explain`.

        Raises:
            ValueError: shapes differ, a number is not finite, or an id occurs twice.
            UnknownMemoryError: one is not there; nothing was changed.
        """
        detail = {"reason": reason} if reason else None
        return self._database.repose(ids, positions, yaws, covariances=covariances, detail=detail)

    def align(
        self,
        robot: str,
        *,
        map_id: str | None = None,
        options: AlignOptions | None = None,
        frame: Motion | None = None,
    ) -> AlignmentResult:
        """Find how a robot's map lies in the store's from what both saw, and move what it alone saw there.

        What comes of the robot's map later is moved as it comes. :meth:`undo` takes it back as long as
        nothing came since; ``frame=Motion()`` does at any time.

        Args:
            robot: as which its memories came, see :mod:`memory.sync`.
            map_id: of the map; not needed where the robot saw things in one only.
            options: when two maps are believed to be aligned.
            frame: from the robot's map into the store's, where that is known: nothing is estimated.

        Raises:
            AlignmentError: too few things are the same, or it is ambiguous; nothing was changed.
            ValueError: the robot saw nothing there, or in several maps of which none is named.
        """
        return aligning.align(self._database, robot, map_id, options, frame)

    def trust(self, robot: str, trust: float, *, why: str = "") -> int:
        """Say how far a robot is believed from now on; returns the operation, which :meth:`undo` takes back.

        Where robots contradict each other, :meth:`consolidate` and answers go by those that are trusted at
        least half as much as the most trusted; means are weighted by it (:func:`memory.merging.fusion.fuse`).
        What is not trusted at all is merged with nothing. What was merged before stays as it is.

        Args:
            robot: as which its memories come, see :mod:`memory.sync`.
            trust: from 0 to 1, which all have of whom nothing was said.
            why: for :meth:`log`. It stays: put nothing into it that is to be erased.

        Raises:
            ValueError: a number out of its range, or no name.
            StoreReadOnlyError: on a server, by who is not the owner of the store.
        """
        return self._database.trust(robot, trust, detail={"reason": why} if why else None)

    def check(self, *, repair: bool = False) -> CheckReport:
        """Whether every row is what was stored, and indexes, log and settings fit; with ``repair``, mend it.

        A repair rebuilds indexes, or where rows are damaged makes a new database of all that are as they
        were stored. The damaged file is kept beside it, ``lost`` says what is not brought back, and a further
        file has what is left of memories that are not whole (``docs/memory-format.md``). A store that cannot
        be opened is repaired by :meth:`memory.persistence.sqlite.database.SqliteDatabase.repair`, or by
        ``recall check --repair``.
        """
        return self._database.check(repair)

    def backup(
        self, folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Path:
        """Copy the store as it is now, with its settings, while it is in use; returns the copy's database.

        The folder holds a store only once the copy is whole and on the disk: remains of one that was
        interrupted are no store, and the next backup into the folder takes their place. Caches are left out.
        The indexes are built again when they are needed; :meth:`observe` starts anew in the copy and may keep
        once more what is like something that is there.

        Args:
            folder: made where there is none.
            progress: called with the pages that are copied and the pages that there are.

        Raises:
            FileExistsError: there is a store already.
        """
        return self._database.backup(folder, progress, beside={CONFIG_NAME: self.config.to_text().encode()})

    def settle(self) -> None:
        """Move vectors to the tiers where they belong now, which otherwise happens in the background.

        On a server: have it begin the tables of the month, where there are none, and make its HNSW index over
        the vectors of each encoder that has more than ``StoreConfig.index_from`` in a month, while others
        read and write. Only this call and :meth:`consolidate` do so, and only the owner of the tables may.
        """
        self._retriever.settle()


def _kept(database: Database) -> StoreConfig:
    """The settings of a store, or the usual ones."""
    known = database.settings
    if database.shared:
        return StoreConfig() if known is None else StoreConfig.of_text(known)
    return StoreConfig.load(database.folder, known)


def _keep(database: Database, config: StoreConfig, told: bool) -> None:
    """Note the settings in the database, and in the file where they were told or it is missing."""
    if database.shared:
        if told and config.to_text() != database.settings:
            database.keep_settings(config.to_text())
        return
    file = database.folder / CONFIG_NAME
    usual = database.settings is None and not file.exists() and not told
    if not usual and config.to_text() != database.settings:
        database.keep_settings(config.to_text())
    if told or not (usual or file.exists()) or is_empty(database.folder):
        config.save(database.folder)
