"""The store: what is remembered, durably, and what is answered."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.config import FILE_NAME as CONFIG_NAME
from memory.config import StoreConfig
from memory.errors import DimensionError, StoreError, UnknownMemoryError
from memory.explaining import explained, kept_because, without_names
from memory.forgetting import Records, select_to_forget
from memory.index import Neighbours
from memory.merging import propose_merges
from memory.observing import Batch
from memory.persistence.filters import Filter
from memory.persistence.ids import check_ids
from memory.persistence.integrity import CheckReport
from memory.persistence.journal import LogEntry
from memory.persistence.sqlite import Database
from memory.persistence.statistics import Stats
from memory.readout import read_out
from memory.reservoir import Reservoir
from memory.retrieve import Found, Retriever, distances, unit_rows
from memory.tiers import Tier
from memory.types import Explanation, Hit, Memory, Order, Query, State

_INDEX_FOLDER = "indexes"
_RESERVOIR_FILE = "reservoir.npz"
#: Accesses that are counted in memory before they are written.
_ACCESSES_AT_ONCE = 4096


class Kept(NamedTuple):
    """What became of an observation.

    Attributes:
        id: of the memory, or ``None`` when it was not worth keeping.
        reason: why, in words.
        importance: from 0 to 1.
    """

    id: int | None
    reason: str
    importance: float


class Observed(NamedTuple):
    """What became of a batch of observations.

    Attributes:
        kept: each, in their order.
        displaced: ids of stored memories that gave way.
        generation: of the operation, or ``None`` when nothing changed.
    """

    kept: list[Kept]
    displaced: tuple[int, ...]
    generation: int | None


class Consolidated(NamedTuple):
    """What consolidation did.

    Attributes:
        merged: (result, sources) ids of each merge.
        forgotten: ids, with the reason of each.
        generations: of the operations, for :meth:`MemoryStore.undo`.
    """

    merged: list[tuple[int, tuple[int, ...]]]
    forgotten: dict[int, str]
    generations: list[int]


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
        self._retriever.load(self.folder / _INDEX_FOLDER)
        self._reservoir: Reservoir | None = None
        self._reservoir_at = -1  # The operation that the reservoir is up to date with.
        self._observing = threading.RLock()
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
            config: settings, which are kept; without them those of the folder.

        Raises:
            StoreError: one of its kinds, see :mod:`memory.errors`.
            DimensionError: the store has vectors of another length.
            ValueError: the settings in the folder are not right.
        """
        database = Database.open(path, dim=dim, readonly=readonly, create=create)
        try:
            if config is None:
                config = StoreConfig.load(database.folder)
            elif not readonly:
                config.save(database.folder)
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
        self._retriever.stop()
        try:
            if not self._database.readonly:
                self._write_accesses()
                self._retriever.save(self.folder / _INDEX_FOLDER)
                self._save_reservoir()
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
        map; what of the batch is kept counts too, for what comes after it, as if each came alone. The
        reservoir keeps the best share of each place and time, every marked one and every one that is unlike
        what is kept there; what a better one displaces is forgotten and can be undone.

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
        if not memories and detail is None:
            return Observed([], (), None)
        for row, memory in enumerate(memories):
            if memory.id is not None:
                raise ValueError(f"memories[{row}] has an id: the store gives it")
            if memory.embedding is not None and len(memory.embedding) != self.dim:
                raise DimensionError(
                    f"memories[{row}] has a vector of {len(memory.embedding)} numbers,"
                    f" the store takes {self.dim}"
                )
        with self._observing:
            reservoir = self._reservoir_now()
            try:
                return self._observe(memories, reservoir, detail)
            except BaseException:
                # Nothing was stored: what was chosen makes room again.
                for key in reservoir.kept[reservoir.kept < 0].tolist():
                    reservoir.discard(key)
                raise

    def _observe(
        self, memories: Sequence[Memory], reservoir: Reservoir, detail: Mapping[str, Any] | None
    ) -> Observed:
        batch = Batch(
            memories,
            self.dim,
            search=self._nearest,
            counts=self._retriever.label_counts(),
            weights=self.config.importance,
        )
        start = self._database.generation
        self._leave_out_forgotten(reservoir)
        chosen: dict[int, Memory] = {}
        decisions: list[tuple[bool, str, float]] = []
        gone: set[int] = set()
        for row, memory in enumerate(memories):
            total = batch.importance(row)
            # A key below zero stands for a memory that has no id yet.
            decision = reservoir.offer(
                -1 - row, importance=total, time_ns=memory.time_ns, position=memory.position,
                map_id=memory.map_id, kind=memory.kind, label=memory.label, embedding=memory.embedding,
                marked=memory.marked,
            )  # fmt: skip
            if decision.kept:
                chosen[-1 - row] = dataclasses.replace(memory, importance=total)
                batch.keep(row)
            key = decision.evicted
            if key is not None and key < 0:
                chosen.pop(key, None)
                batch.leave_out(-1 - key)
                decisions[-1 - key] = (False, "displaced by a more important one", decisions[-1 - key][2])
            elif key is not None:
                gone.add(key)
                batch.forget(key, self._database.columns([key]).labels)
            decisions.append((decision.kept, decision.reason, total))
        if not chosen and not gone and detail is None:
            return Observed([Kept(None, reason, total) for _, reason, total in decisions], (), None)
        keys = list(chosen)
        words = batch.explain([-1 - key for key in keys])
        why = [
            kept_because(chosen[key], decisions[-1 - key][1], told)
            for key, told in zip(keys, words, strict=True)
        ]
        displaced = np.array(sorted(gone), dtype=np.int64)
        displaced = displaced[self._retriever.there(displaced)]
        reason = "displaced by more important observations of the same place and time"
        applied = self._database.apply(
            add=[chosen[key] for key in keys],
            remove=displaced.tolist(),
            operation="observe",
            detail={"reason": reason, "kept": why, **(detail or {})},
        )
        ids = dict(zip(keys, applied.ids, strict=True))
        reservoir.rename(ids)
        # Unless others wrote meanwhile, and perhaps forgot something.
        self._reservoir_at = applied.generation if applied.generation == start + 1 else -1
        kept = [Kept(ids.get(-1 - row), reason, total) for row, (_, reason, total) in enumerate(decisions)]
        return Observed(kept, tuple(displaced.tolist()), applied.generation)

    def query(self, query: Query) -> list[Hit]:
        """The memories that answer a query, the best first.

        Raises:
            DimensionError: a vector of another length.
            UnknownMemoryError: ``like`` names none.
            ValueError: nothing has a vector of that encoder.
        """
        found = self._retriever.find(query)
        memories = self._present(found.ids.tolist())
        if len(memories) < len(found.ids):
            found = found.of([memory.id for memory in memories])
        self._count_accesses(memories)
        return self._hits(query, found, memories)

    def search(self, vectors: ArrayLike, k: int = 10, *, encoder: str = "default") -> Neighbours:
        """Ids and cosine similarities of the most similar memories, for many vectors at once.

        Args:
            vectors: (queries, dim).
            k: of each.
            encoder: which vectors are compared.
        """
        return self._retriever.neighbours(np.asarray(vectors, np.float32), k, encoder=encoder)

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
            EraseError: forgotten, but a reader kept the old bytes from being overwritten.
        """
        gone, detail = check_ids(ids), {"reason": reason}
        if not secure:
            return self._database.remove(gone, detail=detail)
        self._redact_merged(gone)
        with self._observing:
            # Before, so that after a crash no cache holds what is not in the store; and what was read of
            # them meanwhile goes afterwards.
            self._leave_out_of_caches(gone)
            try:
                return self._database.remove(gone, secure=True, detail=detail)
            finally:
                self._leave_out_of_caches(gone)

    def consolidate(
        self, *, now_ns: int | None = None, progress: Callable[[str, int, int], None] | None = None
    ) -> Consolidated:
        """Merge memories of the same thing, then forget what exceeds the capacity of a map.

        Each merge and the forgetting are operations of their own that can be undone.

        Args:
            now_ns: the time that freshness is judged at; by default the computer's.
            progress: called with what is done, how many are done and of how many.
        """
        now = time.time_ns() if now_ns is None else now_ns
        merged: list[tuple[int, tuple[int, ...]]] = []
        generations: list[int] = []
        maps = self._database.maps()
        for place, map_id in enumerate(maps):
            if progress is not None:
                progress(f"merging map {map_id}", place, len(maps))
            kinds = list(self.config.merging.kinds)
            memories = self.find(Filter(map_id=map_id, kinds=kinds), newest_first=False)
            for proposal in propose_merges(memories, self.config.merging):
                applied = self._database.apply(
                    add=[dataclasses.replace(proposal.result, id=None)],
                    remove=proposal.ids,
                    operation="merge",
                    detail={"reason": without_names(proposal), "sources": list(proposal.ids)},
                )
                self._merge_in_reservoir(proposal.ids, applied.ids[0])
                merged.append((applied.ids[0], tuple(proposal.ids)))
                generations.append(applied.generation)
        self._write_accesses()
        forgotten, maps_of = self._forget_over_capacity(now)
        if forgotten:
            # The log outlives the memories and therefore names nothing of them.
            reasons = {
                str(id): reason.replace(f"map {map_id!r} ", "its map ", 1)
                for (id, reason), map_id in zip(forgotten.items(), maps_of, strict=True)
            }
            generations.append(self._database.remove(forgotten, detail={"reasons": reasons}))
        return Consolidated(merged, forgotten, generations)

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
        return explained(id, history, memory[0] if memory else None)

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
                        rows = self._database.before(entry.generation)
                        before[entry.generation] = {row.id: row.state for row in rows}
                    if memory.id in before[entry.generation]:
                        found[memory.id] = before[entry.generation][memory.id]
                        break
        return found

    def check(self, *, repair: bool = False) -> CheckReport:
        """Whether files and indexes are sound; with ``repair``, indexes are built again."""
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
        return self._database.backup(folder, progress, beside={CONFIG_NAME: _as_file(self.config)})

    def stats(self) -> Stats:
        """Numbers about the store."""
        return self._database.stats()

    def tiers(self) -> dict[str, Tier]:
        """Sizes of the recent and the long-term tier, by encoder, of what was searched since opening."""
        return self._retriever.tiers()

    def settle(self) -> None:
        """Move vectors to the tiers where they belong now, which otherwise happens in the background."""
        self._retriever.settle()

    def encoders(self) -> dict[str, int]:
        """Length of the vectors by the name of their encoder."""
        return self._database.slots()

    def maps(self) -> list[str]:
        """The maps that memories are in."""
        return self._database.maps()

    def _hits(self, query: Query, found: Found, memories: list[Memory]) -> list[Hit]:
        parts: list[dict[str, float]] = [{} for _ in memories]
        if found.similarity is not None:
            for part, value in zip(parts, found.similarity, strict=True):
                part["similarity"] = float(value)
        if found.text is not None:
            for part, value in zip(parts, found.text, strict=True):
                part["text"] = float(value)
        if query.near is not None and memories:
            away = distances(np.array([memory.position for memory in memories]), query.near)
            for part, value in zip(parts, away, strict=True):
                part["distance_m"] = float(value)
        if memories and (query.aggregate or _order(query, parts[0]) == "recency"):
            newest = self._newest_ns()
            for part, memory in zip(parts, memories, strict=True):
                age_s = max(newest - memory.time_ns, 0) / 1e9
                part["recency"] = 0.5 ** (age_s / self.config.half_life_s)
        weights: list[float] | None = None
        if query.aggregate and found.similarity is not None:
            # The similarities are all that the weights depend on.
            scores = np.exp(8.0 * (found.similarity - found.similarity.max(initial=-1.0)))
            weights = (scores / scores.sum()).tolist() if len(scores) else []
        hits = []
        for row, (memory, part) in enumerate(zip(memories, parts, strict=True)):
            score = _score(query, part, memory)
            hits.append(Hit(memory, score, part, None if weights is None else weights[row]))
        return hits

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

    def _nearest(self, vectors: NDArray[np.float32], k: int, map_id: str) -> Neighbours:
        """The nearest memories of a map."""
        return self._retriever.neighbours(vectors, k, map_id=map_id)

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
        if len(self._accessed) >= _ACCESSES_AT_ONCE:
            # An answer does not fail because this cannot be written.
            with contextlib.suppress(StoreError):
                self._write_accesses()

    def _write_accesses(self) -> None:
        accessed, self._accessed = self._accessed, []
        if accessed:
            self._database.touch(accessed, time.time_ns())

    def _reservoir_now(self) -> Reservoir:
        if self._reservoir is None:
            path, wanted = self.folder / _RESERVOIR_FILE, self.config.reservoir
            try:
                self._reservoir = Reservoir.load(path)
            except (FileNotFoundError, ValueError):
                self._reservoir = Reservoir(wanted)  # A damaged cache is none.
            old = self._reservoir.config
            if (old.cell_m, old.window_s) == (wanted.cell_m, wanted.window_s):
                self._reservoir.config = wanted
            else:
                # Other places and times: what was decided in the old ones says nothing.
                self._reservoir = Reservoir(wanted)
        return self._reservoir

    def _save_reservoir(self) -> None:
        if self._reservoir is not None:
            self._reservoir.save(self.folder / _RESERVOIR_FILE)

    def _leave_out_forgotten(self, reservoir: Reservoir) -> None:
        """What was forgotten stands for nothing any more: the next one like it is new."""
        if self._reservoir_at == self._database.generation:
            return
        kept = reservoir.kept
        for key in kept[~self._retriever.there(kept)].tolist():
            reservoir.discard(key)

    def _redact_merged(self, ids: Sequence[int]) -> None:
        """Take from the log what memories were that these were merged from, or into, and that are gone."""
        self._database.get(ids, vectors=False)  # Says so where one is not there.
        family, new = set(ids), list(ids)
        while new:
            for entry in self._database.history(new.pop()):
                if entry.operation == "merge":
                    members = {*entry.added, *(int(id) for id in entry.detail.get("sources", ()))}
                    new += members - family
                    family |= members
        others = np.array(sorted(family - set(ids)), dtype=np.int64)
        self._database.redact(others[~self._retriever.there(others)])

    def _leave_out_of_caches(self, ids: Sequence[int]) -> None:
        """Copies of vectors, labels and places go from the files beside the database."""
        self._retriever.drop(self.folder / _INDEX_FOLDER)
        for left in self.folder.glob(f".{_RESERVOIR_FILE}.*"):
            left.unlink(missing_ok=True)  # Of a process that was killed while it wrote.
        if self._reservoir is None and not (self.folder / _RESERVOIR_FILE).exists():
            return
        reservoir = self._reservoir_now()
        self._leave_out_forgotten(reservoir)
        for id in ids:
            if id in reservoir:
                reservoir.discard(id)
        reservoir.drop_empty_windows()
        self._save_reservoir()

    def _merge_in_reservoir(self, sources: Sequence[int], result: int) -> None:
        """The result of a merge stands for what the first of its sources stood for."""
        with self._observing:
            if self._reservoir is None and not (self.folder / _RESERVOIR_FILE).exists():
                return
            reservoir = self._reservoir_now()
            known = [source for source in sources if source in reservoir]
            if known:
                reservoir.rename({known[0]: result})
            for source in known[1:]:
                reservoir.discard(source)

    def _forget_over_capacity(self, now_ns: int) -> tuple[dict[int, str], list[str]]:
        """Reasons by id of what is to be forgotten, and the map of each."""
        capacity, policy = self.config.capacity, self.config.forgetting
        if capacity is None and policy.least is None:
            return {}, []
        parts = []
        after = 0
        while len((columns := self._database.scan_columns(after)).ids):
            parts.append(columns)
            after = int(columns.ids[-1])
        if not parts:
            return {}, []
        values = np.concatenate([np.nan_to_num(part.importance, nan=0.5) for part in parts])
        records = Records(
            ids=np.concatenate([part.ids for part in parts]),
            last_used_ns=np.concatenate([np.maximum(part.accessed_ns, part.time_ns) for part in parts]),
            use_count=np.concatenate([part.access_counts for part in parts]),
            value=values,
            marked=np.concatenate([part.marked for part in parts]),
            map_ids=[name for part in parts for name in part.map_ids],
        )
        chosen = select_to_forget(records, policy, capacity, now_ns)
        rows = np.searchsorted(records.ids, chosen.ids)
        maps_of = [records.map_ids[row] for row in rows]
        return dict(zip(chosen.ids.tolist(), chosen.reasons, strict=True)), maps_of


def _order(query: Query, parts: Mapping[str, float]) -> Order:
    """What was asked for, or what follows from what was compared."""
    return query.order or ("relevance" if {"similarity", "text"} & parts.keys() else "recency")


def _score(query: Query, parts: Mapping[str, float], memory: Memory) -> float:
    """What hits are ordered by."""
    order = _order(query, parts)
    if order == "distance":
        return -parts["distance_m"]
    if order == "recency":
        return float(memory.time_ns)
    return parts["similarity"] if "similarity" in parts else parts["text"]


def _as_file(config: StoreConfig) -> bytes:
    """The content of the file that :meth:`StoreConfig.save` writes."""
    return (json.dumps(config.to_json(), indent=2) + "\n").encode()
