"""Scores a stream, keeps what matters of it, and counts the rest on what stands for it."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.config import StoreConfig
from memory.errors import DimensionError
from memory.explaining import kept_because
from memory.index import Neighbours
from memory.merging.visits import known_visits
from memory.observing import BatchScores, Near
from memory.persistence.filters import Filter
from memory.persistence.operations import Applied
from memory.persistence.sights import Seen
from memory.persistence.sqlite import Database
from memory.reservoir import Decision, Reservoir
from memory.retrieve import Retriever
from memory.types import Memory, State, Visit

RESERVOIR_FILE = "reservoir.npz"
#: Sights wait for a commit at most so long, by the robot's clock, in nanoseconds.
WAIT_NS = 600 * 1_000_000_000
#: States of what is not at its place any more: it stands for no sight there.
AWAY: tuple[State, ...] = ("gone", "moved")


class Kept(NamedTuple):
    """What became of an observation.

    Attributes:
        id: of the memory, or ``None`` when it was not worth keeping.
        reason: why, in words.
        importance: from 0 to 1.
        like: id of the memory that stands for it, on which it is counted where it was not kept; ``None``
            where there is none.
        similarity: cosine to that one; NaN where there is nothing to compare.
    """

    id: int | None
    reason: str
    importance: float
    like: int | None = None
    similarity: float = math.nan


class Observed(NamedTuple):
    """What became of a batch of observations.

    Attributes:
        kept: each, in their order.
        displaced: ids of stored memories that gave way.
        generation: of the operation, or ``None`` when nothing changed but counts.
    """

    kept: list[Kept]
    displaced: tuple[int, ...]
    generation: int | None


class _Sorted(NamedTuple):
    """What is to be done with a batch.

    Attributes:
        chosen: to be stored, by a key below zero.
        decisions: of each observation, with its importance.
        gone: ids of stored memories that give way, each with the key of what stands for it.
        dropped: rows that are not stored, each with the key of what stands for it.
    """

    chosen: dict[int, Memory]
    decisions: list[tuple[Decision, float]]
    gone: dict[int, int | None]
    dropped: dict[int, int | None]


class Observer:
    """Keeps the reservoir of a store, and watches with it.

    Args:
        database: of the store.
        retriever: that finds what is like an observation.
        config: of the store.

    Attributes:
        lock: held while memories are judged; for who changes what they are judged by.
    """

    def __init__(self, database: Database, retriever: Retriever, config: StoreConfig) -> None:
        self.lock = threading.RLock()
        self._database = database
        self._retriever = retriever
        self._config = config
        self._file = database.folder / RESERVOIR_FILE
        self._reservoir: Reservoir | None = None
        self._up_to = -1  # The operation that the reservoir is up to date with.

    def observe(self, memories: Sequence[Memory], detail: Mapping[str, Any] | None) -> Observed:
        """See :meth:`memory.store.MemoryStore.observe_logged`."""
        if not memories and detail is None:
            return Observed([], (), None)
        for row, memory in enumerate(memories):
            if memory.id is not None:
                raise ValueError(f"memories[{row}] has an id: the store gives it")
            dim = self._database.dim
            if memory.embedding is not None and len(memory.embedding) != dim:
                raise DimensionError(
                    f"memories[{row}] has a vector of {len(memory.embedding)} numbers, the store takes {dim}"
                )
        with self.lock:
            reservoir = self._loaded()
            try:
                return self._observe(memories, reservoir, detail)
            except BaseException:
                # Nothing was stored: what was chosen makes room again.
                for key in reservoir.kept[reservoir.kept < 0].tolist():
                    reservoir.discard(key)
                raise

    def merged(self, sources: Sequence[int], result: int) -> None:
        """The result of a merge stands for what the first unique one of its sources stood for."""
        with self.lock:
            if self._reservoir is None and not self._file.exists():
                return
            reservoir = self._loaded()
            known = [source for source in sources if source in reservoir]
            known.sort(key=lambda source: not reservoir.opens(source))
            if known:
                reservoir.rename({known[0]: result})
            for source in known[1:]:
                reservoir.discard(source)

    def leave_out(self, ids: Sequence[int]) -> None:
        """Nothing of these memories stays in the file of the reservoir."""
        for left in self._file.parent.glob(f".{RESERVOIR_FILE}.*"):
            left.unlink(missing_ok=True)  # Of a process that was killed while it wrote.
        if self._reservoir is None and not self._file.exists():
            return
        reservoir = self._loaded()
        self._follow(reservoir)
        for id in ids:
            if id in reservoir:
                reservoir.discard(id)
        reservoir.drop_empty_windows()
        self.save()

    def save(self) -> None:
        """Write the reservoir for the next start."""
        if self._reservoir is not None:
            generation = self._database.generation
            self._reservoir.generation = generation
            self._reservoir.identity = self._database.identity(generation) or ""
            self._reservoir.save(self._file)

    def _observe(
        self, memories: Sequence[Memory], reservoir: Reservoir, detail: Mapping[str, Any] | None
    ) -> Observed:
        batch = BatchScores(
            memories,
            self._database.dim,
            search=self._nearest,
            near=self._near,
            near_m=self._config.reservoir.cell_m,
            counts=self._retriever.label_counts(),
            weights=self._config.importance,
        )
        start = self._database.generation
        self._follow(reservoir)
        sorted_out = self._sort(memories, reservoir, batch)
        chosen, decisions, gone, dropped = sorted_out
        sights = _sights_of(memories, sorted_out)
        counted = {id: seen for id, seen in sights.items() if id >= 0}
        self._database.see(counted)
        if not chosen and not gone and detail is None:
            if self._database.pending.span_ns >= WAIT_NS:
                self._database.flush()
            return Observed(_told(decisions, dropped, {}), (), None)
        keys = list(chosen)
        words = batch.explain([-1 - key for key in keys])
        why = [
            kept_because(chosen[key], decisions[-1 - key][0].reason, told)
            for key, told in zip(keys, words, strict=True)
        ]
        displaced = np.array(sorted(gone), dtype=np.int64)
        displaced = displaced[self._retriever.there(displaced)]
        passed_on = self._passed_on({id: gone[id] for id in displaced.tolist()}, sights)
        reason = "displaced by more important observations of the same place and time"
        try:
            applied = self._database.apply(
                add=[_seen_again(chosen[key], sights.get(key, [])) for key in keys],
                remove=displaced.tolist(),
                operation="observe",
                detail={"reason": reason, "kept": why, **(detail or {})},
                seen=passed_on,
            )
        except BaseException:
            self._database.pending.take_back(counted)
            raise
        ids = dict(zip(keys, applied.ids, strict=True))
        reservoir.rename(ids)
        # Unless others wrote meanwhile, and perhaps forgot something.
        self._up_to = applied.generation if self._alone_since(start, applied) else -1
        return Observed(_told(decisions, dropped, ids), tuple(displaced.tolist()), applied.generation)

    def _sort(self, memories: Sequence[Memory], reservoir: Reservoir, batch: BatchScores) -> _Sorted:
        """Offer the observations in their order."""
        found = _Sorted({}, [], {}, {})
        for row, memory in enumerate(memories):
            total = batch.importance(row)
            # A key below zero stands for a memory that has no id yet.
            decision = reservoir.offer(
                -1 - row, importance=total, time_ns=memory.time_ns, position=memory.position,
                map_id=memory.map_id, kind=memory.kind, label=memory.label, embedding=memory.embedding,
                marked=memory.marked,
            )  # fmt: skip
            if decision.kept:
                found.chosen[-1 - row] = dataclasses.replace(memory, importance=total)
                batch.keep(row)
            else:
                found.dropped[row] = decision.like
            key = decision.evicted
            if key is not None and key < 0:
                found.chosen.pop(key, None)
                found.dropped[-1 - key] = decision.evicted_like
                batch.leave_out(-1 - key)
                before, its_total = found.decisions[-1 - key]
                why = "displaced by a more important one"
                found.decisions[-1 - key] = (before._replace(kept=False, reason=why), its_total)
            elif key is not None:
                found.gone[key] = decision.evicted_like
                batch.forget(key, self._database.columns([key]).labels)
            found.decisions.append((decision, total))
        return found

    def _passed_on(
        self, displaced: Mapping[int, int | None], sights: dict[int, list[Visit]]
    ) -> dict[int, list[Visit]]:
        """What stored memories that give way were seen, by the stored ones that stand for them now.

        What an observation of this batch stands for is added to its own sights.
        """
        found: dict[int, list[Visit]] = {}
        for memory in self._database.get(list(displaced), vectors=False):
            like = displaced[memory.id or 0]
            if like is not None:
                target = found if like >= 0 else sights
                target.setdefault(like, []).extend(known_visits(memory))
        return found

    def _alone_since(self, start: int, applied: Applied) -> bool:
        """Whether nothing but sights was written between an operation and another."""
        between = applied.generation - start - 1
        return not between or all(
            entry.operation == "seen" for entry in self._database.log(start, limit=between)
        )

    def _nearest(self, vectors: NDArray[np.float32], k: int, map_id: str) -> Neighbours:
        """The nearest memories of a map."""
        return self._retriever.neighbours(vectors, k, map_id=map_id)

    def _near(self, memory: Memory, radius_m: float) -> Near:
        """Memories of its map, kind and label around its place."""
        x, y, _ = memory.position
        same = Filter(
            map_id=memory.map_id,
            kinds=(memory.kind,),
            labels=(memory.label,),
            states=("present", "unknown"),
            circle=(x, y, radius_m),
        )
        ids = self._database.ids(same)
        away = self._database.poses(ids.tolist())[:, :2] - (x, y)
        return Near(ids, np.hypot(away[:, 0], away[:, 1]))

    def _loaded(self) -> Reservoir:
        if self._reservoir is None:
            wanted = self._config.reservoir
            try:
                self._reservoir = Reservoir.load(self._file)
            except (OSError, ValueError):
                self._reservoir = Reservoir(wanted)  # A damaged cache is none.
            followed = self._reservoir.generation
            if self._reservoir.identity != self._database.identity(followed):
                self._reservoir = Reservoir(wanted)  # Of another store, or of what a copy became.
            old = self._reservoir.config
            if (old.cell_m, old.window_s) == (wanted.cell_m, wanted.window_s):
                self._reservoir.config = wanted
            else:
                # Other places and times: what was decided in the old ones says nothing.
                self._reservoir = Reservoir(wanted)
        return self._reservoir

    def _follow(self, reservoir: Reservoir) -> None:
        """What was forgotten, or is gone, stands for nothing any more: the next one like it is new."""
        if self._up_to == self._database.generation:
            return
        kept = reservoir.kept
        away = self._retriever.ids(Filter(states=AWAY))
        for key in kept[~self._retriever.there(kept) | np.isin(kept, away)].tolist():
            reservoir.discard(key)


def _sights_of(memories: Sequence[Memory], sorted_out: _Sorted) -> dict[int, list[Visit]]:
    """What is not kept, by the key of what stands for it."""
    found: dict[int, list[Visit]] = {}
    for row, like in sorted_out.dropped.items():
        if like is not None:
            found.setdefault(like, []).extend(known_visits(memories[row]))
    return found


def _seen_again(memory: Memory, sights: Sequence[Visit]) -> Memory:
    """A memory with the sights of its own batch that it stands for."""
    return dataclasses.replace(memory, **Seen.of(memory).after(sights).fields()) if sights else memory


def _told(
    decisions: Sequence[tuple[Decision, float]], dropped: Mapping[int, int | None], ids: Mapping[int, int]
) -> list[Kept]:
    """The decisions with ids instead of keys."""
    found = []
    for row, (decision, total) in enumerate(decisions):
        like = dropped.get(row, decision.like)
        stands = ids.get(like) if like is not None and like < 0 else like
        found.append(Kept(ids.get(-1 - row), decision.reason, total, stands, decision.similarity))
    return found
