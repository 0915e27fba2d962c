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
from memory.index import Neighbours
from memory.merging.visits import known_visits
from memory.observe.reservoir import Decision, Reservoir
from memory.observe.scores import BatchScores, Near
from memory.persistence.database import Database
from memory.persistence.log.observations import ObservationSummary
from memory.persistence.log.operations import OperationResult
from memory.query import Filter
from memory.search.retriever import Retriever
from memory.types import AWAY, Memory, Visit
from memory.wording.reasons import Plain, Reason

RESERVOIR_FILE = "reservoir.npz"
#: Sights wait for a commit at most so long, by the robot's clock, in nanoseconds.
WAIT_NS = 600 * 1_000_000_000


class Kept(NamedTuple):
    """What became of an observation.

    Attributes:
        id: of the memory, or ``None`` when it was not worth keeping.
        why: the reason; ``reason`` says it in words.
        importance: from 0 to 1.
        like: id of the memory that stands for it, on which it is counted where it was not kept; ``None``
            where there is none.
        similarity: cosine to that one; NaN where there is nothing to compare.
    """

    id: int | None
    why: Reason
    importance: float
    like: int | None = None
    similarity: float = math.nan

    @property
    def reason(self) -> str:
        """Why, in words."""
        return str(self.why)


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


class _Judged(NamedTuple):
    """What is to be done with a batch. A key below zero stands for a memory that has no id yet.

    Attributes:
        start: the operation that the store was at.
        decisions: of each observation, with its importance.
        chosen: to be stored, by key.
        why: for the log, of each of these.
        dropped: rows that are not stored, each with the key of what stands for it.
        sights: of what is not stored, by the key of what stands for it.
        gone: ids of stored memories that give way, each with the key of what stands for it.
    """

    start: int
    decisions: list[tuple[Decision, float]]
    chosen: dict[int, Memory]
    why: list[list[Any]]
    dropped: dict[int, int | None]
    sights: dict[int, list[Visit]]
    gone: dict[int, int | None]


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
                judged = self._judge(memories, reservoir)
                applied = self._write(judged, detail)
                return self._learned(judged, applied, reservoir)
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

    def _judge(self, memories: Sequence[Memory], reservoir: Reservoir) -> _Judged:
        """Score the observations and offer them to the reservoir, in their order."""
        batch = BatchScores(
            memories,
            self._database.dim,
            search=self._nearest,
            near=self._near,
            near_m=self._config.reservoir.cell_m,
            counts=self._retriever.label_counts(),
            weights=self._config.importance,
        )
        judged = _Judged(self._database.generation, [], {}, [], {}, {}, {})
        self._follow(reservoir)
        for row, memory in enumerate(memories):
            total = batch.importance(row)
            decision = reservoir.offer(-1 - row, memory, total)
            if decision.kept:
                judged.chosen[-1 - row] = dataclasses.replace(memory, importance=total)
                batch.keep(row)
            else:
                judged.dropped[row] = decision.like
            key = decision.evicted
            if key is not None and key < 0:
                judged.chosen.pop(key, None)
                judged.dropped[-1 - key] = decision.evicted_like
                batch.leave_out(-1 - key)
                before, its_total = judged.decisions[-1 - key]
                why = Plain(sort="displaced")
                judged.decisions[-1 - key] = (before._replace(kept=False, why=why), its_total)
            elif key is not None:
                judged.gone[key] = decision.evicted_like
                batch.forget(key, self._database.columns([key]).labels)
            judged.decisions.append((decision, total))
        scores = batch.explain([-1 - key for key in judged.chosen]) if judged.chosen else []
        for key, score in zip(judged.chosen, scores, strict=True):
            judged.why.append([judged.decisions[-1 - key][0].why.to_json(), score.to_json()])
        for row, like in judged.dropped.items():
            if like is not None:
                judged.sights.setdefault(like, []).extend(known_visits(memories[row]))
        return judged

    def _write(self, judged: _Judged, detail: Mapping[str, Any] | None) -> OperationResult | None:
        """Store what was chosen, and count the rest; ``None`` where there are only counts, which may wait."""
        counted = {id: seen for id, seen in judged.sights.items() if id >= 0}
        self._database.see(counted)
        if not judged.chosen and not judged.gone and detail is None:
            if self._database.pending.span_ns >= WAIT_NS:
                self._database.flush()
            return None
        there = self._retriever.there(np.array(list(judged.gone), dtype=np.int64))
        for id in np.array(list(judged.gone), dtype=np.int64)[~there].tolist():
            del judged.gone[id]
        passed_on = self._passed_on(judged)
        reason = Plain(sort="gave way").to_json()
        try:
            return self._database.apply(
                add=[
                    _seen_again(memory, judged.sights.get(key, [])) for key, memory in judged.chosen.items()
                ],
                remove=sorted(judged.gone),
                operation="observe",
                detail={"reason": reason, "kept": judged.why, **(detail or {})},
                seen=passed_on,
            )
        except BaseException:
            self._database.pending.take_back(counted)
            raise

    def _learned(self, judged: _Judged, applied: OperationResult | None, reservoir: Reservoir) -> Observed:
        """Ids in place of keys."""
        ids: dict[int, int] = {}
        if applied is not None:
            ids = dict(zip(judged.chosen, applied.ids, strict=True))
            reservoir.rename(ids)
            # Unless others wrote meanwhile, and perhaps forgot something.
            self._up_to = applied.generation if self._alone_since(judged.start, applied) else -1
        kept = []
        for row, (decision, total) in enumerate(judged.decisions):
            like = judged.dropped.get(row, decision.like)
            stands = ids.get(like) if like is not None and like < 0 else like
            kept.append(Kept(ids.get(-1 - row), decision.why, total, stands, decision.similarity))
        return Observed(kept, tuple(sorted(judged.gone)), None if applied is None else applied.generation)

    def _passed_on(self, judged: _Judged) -> dict[int, list[Visit]]:
        """What stored memories that give way were seen, by the stored ones that stand for them now.

        What an observation of this batch stands for is added to its own sights.
        """
        found: dict[int, list[Visit]] = {}
        for memory in self._database.get(sorted(judged.gone), vectors=False):
            like = judged.gone[memory.id or 0]
            if like is not None:
                target = found if like >= 0 else judged.sights
                target.setdefault(like, []).extend(known_visits(memory))
        return found

    def _alone_since(self, start: int, applied: OperationResult) -> bool:
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
        x, y, _ = memory.place
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


def _seen_again(memory: Memory, sights: Sequence[Visit]) -> Memory:
    """A memory with the sights of its own batch that it stands for."""
    return (
        dataclasses.replace(memory, **ObservationSummary.of(memory).after(sights).fields())
        if sights
        else memory
    )
