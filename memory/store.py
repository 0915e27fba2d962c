"""The store: what is remembered, durably, and what is answered."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.care import Care, Consolidated
from memory.config import FILE_NAME as CONFIG_NAME
from memory.config import StoreConfig, is_empty
from memory.errors import StoreError, UnknownMemoryError
from memory.explaining import explained
from memory.hits import hits_of
from memory.index import Neighbours
from memory.index.neighbours import unit_rows
from memory.observer import Kept, Observed, Observer
from memory.persistence.ids import check_ids
from memory.persistence.integrity import CheckReport
from memory.persistence.journal import LogEntry
from memory.persistence.operations import Trimmed
from memory.persistence.sqlite import Database
from memory.persistence.statistics import Stats
from memory.query import Filter, Query
from memory.readout import read_out
from memory.retrieve import Retriever
from memory.tiers import Tier
from memory.types import Explanation, Hit, Memory, State
from memory.wording.meaning import read_query

__all__ = ["Consolidated", "Kept", "MemoryStore", "Observed", "Trimmed"]

_INDEX_FOLDER = "indexes"
#: Accesses that are counted in memory before they are written, and that wait there at most.
_ACCESSES_AT_ONCE = 4096
_ACCESSES_WAITING = 64 * _ACCESSES_AT_ONCE


class MemoryStore:
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
        self.folder = database.folder
        self.config = config
        self.dim = database.dim
        self._database = database
        self._retriever = Retriever(
            database, index_from=config.index_from, index=config.index, tiers=config.tiers
        )
        self._retriever.indexes.load(self.folder / _INDEX_FOLDER)
        self._observer = Observer(database, self._retriever, config)
        self._care = Care(database, self._retriever, self._observer, config, self.folder / _INDEX_FOLDER)
        self._accessed: list[int] = []
        self._newest = (-1, 0)  # Operation, and time of the newest memory after it.
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
            path: the folder.
            dim: length of the vectors; needed for a new store, checked for an old one.
            readonly: never change anything; may be while another process writes.
            create: make the store where there is none.
            config: settings, which are kept; without them those of the folder, or of the database where the
                folder has none.

        Raises:
            StoreError: one of its kinds, see :mod:`memory.errors`.
            DimensionError: the store has vectors of another length.
            ValueError: the settings in the folder are not right.
        """
        database = Database.open(path, dim=dim, readonly=readonly, create=create)
        try:
            told = config is not None
            if config is None:
                config = StoreConfig.load(database.folder, database.settings)
            if not readonly:
                _keep(database, config, told)
            return cls(database, config)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Write the indexes for the next start, and close. Nothing is lost without it.

        Raises:
            StoreError, OSError: the caches could not be written, as on a full disk; the store is closed.
        """
        if self._closed:
            return
        self._closed = True
        self._retriever.indexes.stop()
        try:
            if not self._database.readonly:
                self._database.flush()
                self._write_accesses()
                self._retriever.indexes.save(self.folder / _INDEX_FOLDER)
                self._observer.save()
        finally:
            self._database.close()

    def __enter__(self) -> MemoryStore:
        """The store."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __len__(self) -> int:
        return self._database.count()

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

        Importance is that of :mod:`memory.importance`, with the similarity to the nearest memory of the same
        map, or where there is no vector by how close the nearest of its kind and label is; what of the batch
        is kept counts too, for what comes after it, as if each came alone. The reservoir keeps the best share
        of each place and time, every marked one and every one that is unlike what is kept there; what a
        better one displaces is forgotten and can be undone.

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

    def query(self, query: Query) -> list[Hit]:
        """The memories that answer a query, the best first.

        Raises:
            DimensionError: a vector of another length.
            UnknownMemoryError: ``like`` names none.
            ValueError: nothing has a vector of that encoder.
        """
        hits = self._answered(query)
        if not hits or len(query.where.labels or ()) > 1:
            meant = read_query(query, self._retriever.label_counts, self._database.corrections)
            if meant.notes:
                reason = "; ".join(meant.notes)
                hits = [dataclasses.replace(hit, reason=reason) for hit in self._answered(meant.query)]
        return hits

    def _answered(self, query: Query) -> list[Hit]:
        """The hits of a query as it is said."""
        found = self._retriever.find(query)
        memories = self._present(found.ids.tolist())
        if len(memories) < len(found.ids):
            found = found.of([memory.id for memory in memories])
        self._count_accesses(memories)
        return hits_of(query, found, memories, newest_ns=self._newest_ns, half_life_s=self.config.half_life_s)

    def search(
        self, vectors: ArrayLike, k: int = 10, *, encoder: str = "default", aim: float = 0.99
    ) -> Neighbours:
        """Ids and cosine similarities of the most similar memories, for many vectors at once.

        Args:
            vectors: (queries, dim).
            k: of each.
            encoder: which vectors are compared.
            aim: share of the ten nearest to find, by what was measured on the memories themselves; less takes
                less time, 1 compares all.
        """
        return self._retriever.neighbours(np.asarray(vectors, np.float32), k, encoder=encoder, aim=aim)

    def context(self, query: Query) -> tuple[NDArray[np.float32], list[Hit]]:
        """One vector that attention makes of the hits, and the hits with their weights as evidence.

        Raises:
            ValueError: the query has no vector to attend with.
        """
        hits = self.query(dataclasses.replace(query, aggregate=True))
        vector = query.embedding
        if vector is None and query.like is not None:
            vector = self._database.vectors([query.like], query.encoder).halves[0].astype(np.float32)
        if vector is None:
            raise ValueError("context needs a query with an embedding or like")
        ids = [int(hit.memory.id) for hit in hits if hit.memory.id is not None]
        vectors = self._database.vectors(ids, query.encoder).halves.astype(np.float32)
        return read_out(unit_rows(vector[None], len(vector))[0], vectors).context, hits

    def get(self, ids: Iterable[int]) -> list[Memory]:
        """Memories by their ids.

        Raises:
            UnknownMemoryError: one is not there.
        """
        return self._database.get(ids)

    def find(
        self,
        filter: Filter,
        *,
        newest_first: bool = True,
        limit: int | None = None,
        vectors: bool = True,
    ) -> list[Memory]:
        """All memories that pass a filter.

        Args:
            filter: what they must be.
            newest_first: or the oldest first.
            limit: most of them.
            vectors: with their vectors; without, it takes less time.
        """
        order: Any = "newest" if newest_first else "oldest"
        ids = self._database.ids(filter, order=order, limit=limit).tolist()
        return self._present(ids, vectors=vectors)

    def find_merged(self, filter: Filter) -> list[Memory]:
        """Those that pass a filter and stand for several observations, by rising id and without vectors."""
        ids = self._retriever.ids(dataclasses.replace(filter, text=None), several=True)
        if filter.text is not None:
            ids = np.intersect1d(ids, self._database.ids(Filter(text=filter.text)))
        return self._present(ids.tolist(), vectors=False)

    def find_last_seen(self, filter: Filter, after_ns: int) -> list[Memory]:
        """Those that pass a filter and stand for a sight after a time, as of the one that was seen last.

        Only where that is not their own ``time_ns``. Without vectors.
        """
        visited = self._database.visited_after(after_ns)
        if not len(visited.ids):
            return []
        ids = self._retriever.ids(dataclasses.replace(filter, text=None), several=True)
        if filter.text is not None:
            ids = np.intersect1d(ids, self._database.ids(Filter(text=filter.text)))
        fits = np.isin(visited.ids, ids)
        last = visited.first_ns[fits].max(initial=after_ns)
        return self._present(visited.ids[fits & (visited.first_ns == last)].tolist(), vectors=False)

    def find_seen(
        self, filter: Filter, *, limit: int | None = None, vectors: bool = True
    ) -> tuple[list[Memory], int]:
        """Memories that pass a filter and were seen within its ``between_ns``, and how many there are.

        Unlike :meth:`find`, which looks at ``time_ns`` alone, a merged memory is found by each of its visits.

        Args:
            filter: what they must be, with ``between_ns``.
            limit: most of them; those that were seen first within that time.
            vectors: with their vectors; without, it takes less time.
        """
        found = self._database.seen(filter, limit=limit)
        return self._present(found.ids.tolist(), vectors=vectors), found.total

    @property
    def newest_ns(self) -> int:
        """Time of the newest memory; 0 where there is none."""
        return self._newest_ns()

    def label_counts(self) -> dict[str, int]:
        """How many memories have each label."""
        return self._retriever.label_counts()

    def corrections(self, text: str) -> dict[str, str]:
        """For words that no memory has in any form, the word of the store that differs by a slip or two."""
        return self._database.corrections(text)

    def count(self, filter: Filter) -> int:
        """How many pass a filter, exactly."""
        return self._database.count(filter)

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
        return self._care.forget(ids, secure=secure, reason=reason)

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
        known = check_ids(ids)
        if not known:
            return self.generation
        return self._care.mark(known, state, at_ns=at_ns, why=why, newest_ns=self._newest_ns())

    def trim(self, *, keep_ns: int | None = None, keep_operations: int | None = None) -> Trimmed:
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
        as ``StoreConfig.undo_keep_s`` and ``undo_keep_operations`` say, see :meth:`trim`.

        Args:
            now_ns: the time that freshness is judged at; by default the computer's.
            progress: called with what is done, how many are done and of how many.
        """
        now = time.time_ns() if now_ns is None else now_ns
        return self._care.consolidate(now, self._write_accesses, progress)

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
        """
        detail = {"reason": reason} if reason else None
        return self._database.repose(ids, positions, yaws, covariances=covariances, detail=detail)

    def explain(self, id: int) -> Explanation:
        """Why a memory was kept, merged or forgotten.

        Raises:
            UnknownMemoryError: there never was such a memory.
        """
        history = self._database.history(id)
        if not history:
            raise UnknownMemoryError(f"there never was a memory {id}")
        memory = self._present([id], vectors=False)
        return explained(id, history, memory[0] if memory else None, self._database.sighted(id))

    def log(self, after: int = 0, *, limit: int | None = None) -> list[LogEntry]:
        """What was done, by rising number; each can be given to :meth:`undo`."""
        return self._database.log(after, limit=limit)

    @property
    def database(self) -> Database:
        """The tables below, which are the store's to close. A second handle in one process is no safe way to
        them: opening one lets go of the locks that SQLite holds for the first.
        """
        return self._database

    @property
    def readonly(self) -> bool:
        """Whether it was opened for reading only."""
        return self._database.readonly

    @property
    def generation(self) -> int:
        """Number of the last operation."""
        return self._database.generation

    def states_at(self, generation: int, ids: Iterable[int]) -> dict[int, State]:
        """State of memories that are there now, as it was after an operation; none for those added later."""
        found: dict[int, State] = {}
        before: dict[int, dict[int | None, State]] = {}
        for memory in self._present(list(ids), vectors=False):
            assert memory.id is not None
            history = self._database.history(memory.id)
            if history[0].generation > generation:
                continue
            found[memory.id] = memory.state
            for entry in history:
                if entry.generation > generation:
                    if entry.generation not in before:
                        before[entry.generation] = self._states_before(entry)
                    if memory.id in before[entry.generation]:
                        found[memory.id] = before[entry.generation][memory.id]
                        break
        return found

    def _states_before(self, entry: LogEntry) -> dict[int | None, State]:
        """States of what an operation changed or removed; those before a marking outlive a trimming."""
        if entry.operation == "mark":
            return {int(id): state for id, state in entry.detail["was"].items()}
        return {row.id: row.state for row in self._database.before(entry.generation)}

    def check(self, *, repair: bool = False) -> CheckReport:
        """Whether every row is what was stored, and indexes, log and settings fit; with ``repair``, mend it.

        A repair rebuilds indexes, or where rows are damaged makes a new database of all that are as they
        were stored. The damaged file is kept beside it, ``lost`` says what is not brought back, and a further
        file has what is left of memories that are not whole (``docs/memory-format.md``). A store that cannot
        be opened is repaired by :meth:`memory.persistence.sqlite.Database.repair`, or by
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

    def stats(self) -> Stats:
        """Numbers about the store."""
        return self._database.stats()

    def tiers(self) -> dict[str, Tier]:
        """Sizes of the recent and the long-term tier, by encoder, of what was searched since opening."""
        return self._retriever.indexes.tiers()

    def settle(self) -> None:
        """Move vectors to the tiers where they belong now, which otherwise happens in the background."""
        self._retriever.indexes.settle()

    def encoders(self) -> dict[str, int]:
        """Length of the vectors by the name of their encoder."""
        return self._database.slots()

    def maps(self) -> list[str]:
        """The maps that memories are in."""
        return self._database.maps()

    def _newest_ns(self) -> int:
        """Time of the newest memory, by the robot's clock: what recency is measured from."""
        generation = self._database.generation
        if self._newest[0] != generation:
            ids = self._database.ids(order="newest", limit=1)
            times = self._database.columns(ids).time_ns.tolist()
            if not times:
                return -(2**63)
            self._newest = (generation, times[0])
        return self._newest[1]

    def _present(self, ids: Sequence[int], *, vectors: bool = True) -> list[Memory]:
        """Those of the memories that are still there: another thread or process may just have removed one."""
        while True:
            try:
                return self._database.get(ids, vectors=vectors)
            except UnknownMemoryError:
                there = set(self._database.columns(ids).ids.tolist())
                ids = [id for id in ids if id in there]

    def _count_accesses(self, memories: Sequence[Memory]) -> None:
        """Note what was given as an answer; least used memories are forgotten first."""
        if self._database.readonly:
            return
        self._accessed += [memory.id for memory in memories if memory.id is not None]
        if len(self._accessed) > _ACCESSES_WAITING:
            self._accessed = self._accessed[-_ACCESSES_WAITING:]
        if len(self._accessed) >= _ACCESSES_AT_ONCE and not self._database.busy:
            # An answer does not fail because this cannot be written, nor does it wait for others' writing.
            with contextlib.suppress(StoreError):
                self._write_accesses()

    def _write_accesses(self) -> None:
        accessed, self._accessed = self._accessed, []
        if accessed:
            self._database.touch(accessed, time.time_ns())


def _keep(database: Database, config: StoreConfig, told: bool) -> None:
    """Note the settings in the database, and in the file where they were told or it is missing."""
    file = database.folder / CONFIG_NAME
    usual = database.settings is None and not file.exists() and not told
    if not usual and config.to_text() != database.settings:
        database.keep_settings(config.to_text())
    if told or not (usual or file.exists()) or is_empty(database.folder):
        config.save(database.folder)
