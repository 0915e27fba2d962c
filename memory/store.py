"""The store: what is remembered, durably, and what is answered."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.config import StoreConfig
from memory.errors import UnknownMemoryError
from memory.forgetting import Records, select_to_forget
from memory.importance import memory_importance
from memory.index import Neighbours
from memory.merging import propose_merges
from memory.persistence.filters import Filter
from memory.persistence.integrity import CheckReport
from memory.persistence.journal import LogEntry
from memory.persistence.sqlite import Database, Stats
from memory.readout import read_out
from memory.reservoir import Reservoir
from memory.retrieve import Found, Retriever, distances, unit_rows
from memory.types import Explanation, Hit, Memory, Query

_INDEX_FOLDER = "indexes"
_RESERVOIR_FILE = "reservoir.safetensors"


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
        self._retriever = Retriever(database, index_from=config.index_from)
        self._retriever.load(self.folder / _INDEX_FOLDER)
        self._reservoir: Reservoir | None = None

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
        """Write the indexes for the next start, and close. Nothing is lost without it."""
        if not self._database.readonly:
            self._retriever.save(self.folder / _INDEX_FOLDER)
            if self._reservoir is not None:
                self._reservoir.save(self.folder / _RESERVOIR_FILE)
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
        map. The reservoir keeps the best share of each place and time, every marked one and every one that is
        unlike what is kept there; what a better one displaces is forgotten and can be undone.

        Returns:
            What became of each, in their order.
        """
        if not memories:
            return []
        nearest = self._nearest(memories)
        columns = self._retriever.columns()
        labels, counts = np.unique(columns.column("labels")[columns.column("alive")], return_counts=True)
        names = columns.names("labels")
        known = {names[code]: int(count) for code, count in zip(labels, counts, strict=True)}
        scores = memory_importance(
            memories, nearest_similarity=nearest, counts=known, weights=self.config.importance
        )
        reservoir = self._reservoir_now()
        chosen: dict[int, Memory] = {}
        decisions: list[tuple[bool, str, float]] = []
        gone: set[int] = set()
        for row, memory in enumerate(memories):
            total = float(scores.total[row])
            rated = dataclasses.replace(memory, importance=total)
            # A key below zero stands for a memory that has no id yet.
            decision = reservoir.offer_memory(rated, key=-1 - row)
            if decision.kept:
                chosen[-1 - row] = rated
            key = decision.evicted
            if key is not None and key < 0:
                chosen.pop(key, None)
                decisions[-1 - key] = (False, "displaced by a more important one", decisions[-1 - key][2])
            elif key is not None:
                gone.add(key)
            decisions.append((decision.kept, decision.reason, total))
        keys = list(chosen)
        there = [key for key in sorted(gone) if self._retriever.columns().rows(np.array([key]))[0] >= 0]
        applied = self._database.apply(
            add=[chosen[key] for key in keys],
            remove=there,
            operation="observe",
            detail={"reason": "displaced by more important observations of the same place and time"},
        )
        ids = dict(zip(keys, applied.ids, strict=True))
        reservoir.rename(ids)
        return [Kept(ids.get(-1 - row), reason, total) for row, (_, reason, total) in enumerate(decisions)]

    def query(self, query: Query) -> list[Hit]:
        """The memories that answer a query, the best first.

        Raises:
            DimensionError: a vector of another length.
            UnknownMemoryError: ``like`` names none.
            ValueError: nothing has a vector of that encoder.
        """
        found = self._retriever.find(query)
        memories = self._database.get(found.ids.tolist())
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

    def find(self, filter: Filter, *, newest_first: bool = True, limit: int | None = None) -> list[Memory]:
        """All memories that pass a filter."""
        order: Any = "newest" if newest_first else "oldest"
        return self._database.get(self._database.ids(filter, order=order, limit=limit).tolist())

    def forget(self, ids: Iterable[int], *, secure: bool = False, reason: str = "asked for") -> int:
        """Forget memories; returns the operation, which :meth:`undo` takes back.

        Args:
            ids: of the memories.
            secure: erase them from the files for good. This cannot be undone.
            reason: for :meth:`explain`.

        Raises:
            UnknownMemoryError: one is not there; nothing was forgotten.
        """
        return self._database.remove(ids, secure=secure, detail={"reason": reason})

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
                    detail={"reason": proposal.why, "sources": list(proposal.ids)},
                )
                merged.append((applied.ids[0], tuple(proposal.ids)))
                generations.append(applied.generation)
        forgotten = self._forget_over_capacity(now)
        if forgotten:
            reasons = {str(key): reason for key, reason in forgotten.items()}
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
        return _explained(id, history, self._database)

    def log(self, after: int = 0, *, limit: int | None = None) -> list[LogEntry]:
        """What was done, by rising number; each can be given to :meth:`undo`."""
        return self._database.log(after, limit=limit)

    def check(self, *, repair: bool = False) -> CheckReport:
        """Whether files and indexes are sound; with ``repair``, indexes are built again."""
        return self._database.check(repair)

    def backup(
        self, folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Path:
        """Copy the store while it is in use."""
        return self._database.backup(folder, progress)

    def stats(self) -> Stats:
        """Numbers about the store."""
        return self._database.stats()

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

    def _nearest(self, memories: Sequence[Memory]) -> NDArray[np.float64]:
        """Cosine of each with the nearest that is known; NaN where nothing can be compared."""
        nearest = np.full(len(memories), np.nan)
        rows = [row for row, memory in enumerate(memories) if memory.embedding is not None]
        if rows and len(self):
            vectors = np.stack([np.asarray(memories[row].embedding) for row in rows])
            found = self.search(vectors, 1)
            nearest[rows] = np.where(found.ids[:, 0] >= 0, found.scores[:, 0], np.nan)
        return nearest

    def _reservoir_now(self) -> Reservoir:
        if self._reservoir is None:
            path = self.folder / _RESERVOIR_FILE
            self._reservoir = Reservoir.load(path) if path.exists() else Reservoir(self.config.reservoir)
        return self._reservoir

    def _forget_over_capacity(self, now_ns: int) -> dict[int, str]:
        capacity, policy = self.config.capacity, self.config.forgetting
        if capacity is None and policy.least is None:
            return {}
        parts = []
        after = 0
        while len((columns := self._database.scan_columns(after)).ids):
            parts.append(columns)
            after = int(columns.ids[-1])
        if not parts:
            return {}
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
        return dict(zip(chosen.ids.tolist(), chosen.reasons, strict=True))


def _score(query: Query, parts: Mapping[str, float], memory: Memory) -> float:
    """What hits are ordered by."""
    order = query.order or ("relevance" if {"similarity", "text"} & parts.keys() else "recency")
    if order == "distance":
        return -parts["distance_m"]
    if order == "recency":
        return float(memory.time_ns)
    return parts["similarity"] if "similarity" in parts else parts["text"]


def _explained(id: int, history: list[LogEntry], database: Database) -> Explanation:
    """Sentences about what happened to a memory, from the log."""
    events = []
    into: int | None = None
    sources: tuple[int, ...] = ()
    for entry in history:
        detail = str(entry.detail.get("reason", ""))
        reasons = entry.detail.get("reasons")
        if isinstance(reasons, dict):
            detail = str(reasons.get(str(id), detail))
        if entry.operation == "merge":
            if id in entry.added:
                sources = tuple(int(source) for source in entry.detail.get("sources", ()))
                detail = f"made of {', '.join(map(str, sources))}: {detail}"
            elif id in entry.detail.get("sources", ()):
                into = entry.added[0] if len(entry.added) else None
                detail = f"merged into {into}: {detail}"
        events.append((entry.time_ns, entry.operation, detail))
    try:
        memory = database.get([id], vectors=False)[0]
    except UnknownMemoryError:
        last = history[-1]
        status = "merged" if into is not None and last.operation == "merge" else "forgotten"
        return Explanation(id, status, [_sentence(*events[-1])], history=events, into=into, sources=sources)
    parts = {"confidence": memory.confidence, "reward": memory.reward, "count": float(memory.count)}
    reasons_kept = [f"it is stored since {_moment(events[0][0])}"]
    if memory.importance is not None:
        parts["importance"] = memory.importance
        reasons_kept.append(f"its importance was {memory.importance:.2f} when it came")
    if memory.marked:
        reasons_kept.insert(0, "it is marked: it is never forgotten on its own")
    if sources:
        reasons_kept.append(f"it stands for {memory.count} observations, merged of {len(sources)} memories")
    undone = history[-1].operation == "undo"
    if undone:
        reasons_kept.insert(0, _sentence(*events[-1]))
    return Explanation(
        id, "undone" if undone else "kept", reasons_kept, parts=parts, history=events, sources=sources
    )


def _sentence(time_ns: int, operation: str, detail: str) -> str:
    return f"{operation} on {_moment(time_ns)}" + (f": {detail}" if detail else "")


def _moment(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ns // 1_000_000_000)) + " UTC"
