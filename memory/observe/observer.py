"""Observation of a stream: important observations are stored, others counted."""

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
from memory.observe.scores import BatchScores, Neighbourhood
from memory.persistence.database import Database
from memory.persistence.log.observations import ObservationSummary
from memory.persistence.log.operations import OperationResult
from memory.query import Filter
from memory.search.retriever import Retriever
from memory.types import AWAY, Memory, Visit
from memory.wording.reasons import FixedReason, Reason

RESERVOIR_FILE = "reservoir.npz"
#: Maximum time that counts wait for a commit, by the robot's clock, in nanoseconds.
WAIT_NS = 600 * 1_000_000_000


class Kept(NamedTuple):
    """Decision for an observation.

    Attributes:
        id: id of the memory, or ``None`` if it was not stored.
        why: the reason; ``reason`` is its text.
        importance: from 0 to 1.
        like: id of the memory that represents it and counts it if it was not stored; ``None`` if there is
            none.
        similarity: cosine similarity to that memory; NaN without one.
    """

    id: int | None
    why: Reason
    importance: float
    like: int | None = None
    similarity: float = math.nan

    @property
    def reason(self) -> str:
        """The reason in words."""
        return str(self.why)


class Observed(NamedTuple):
    """Result of a batch of observations.

    Attributes:
        kept: decision for each observation, in order.
        displaced: ids of stored memories that were replaced.
        generation: number of the operation; ``None`` if only counts changed.
    """

    kept: list[Kept]
    displaced: tuple[int, ...]
    generation: int | None


class _BatchPlan(NamedTuple):
    """Decisions for a batch. Negative keys stand for memories that have no id yet.

    Attributes:
        start: operation at which the batch was judged.
        decisions: decision and importance of each observation.
        chosen: memories to store, by key.
        why: reasons for the log, by key.
        dropped: rows that are not stored, with the key of the memory that represents each.
        sights: visits of these rows, by that key.
        gone: ids of replaced memories, with the key of the memory that represents each.
    """

    start: int
    decisions: list[tuple[Decision, float]]
    chosen: dict[int, Memory]
    why: list[list[Any]]
    dropped: dict[int, int | None]
    sights: dict[int, list[Visit]]
    gone: dict[int, int | None]


class Observer:
    """Observer of a store with its reservoir.

    Args:
        database: database of the store.
        retriever: search of the store.
        config: settings of the store.

    Attributes:
        lock: held while observations are judged.
    """

    def __init__(self, database: Database, retriever: Retriever, config: StoreConfig) -> None:
        self.lock = threading.RLock()
        self._database = database
        self._retriever = retriever
        self._config = config
        self._file = database.folder / RESERVOIR_FILE
        self._reservoir: Reservoir | None = None
        self._up_to = -1  # Operation that the reservoir reflects.

    def observe(self, memories: Sequence[Memory], detail: Mapping[str, Any] | None) -> Observed:
        """See :meth:`memory.store.MemoryStore.observe_logged`."""
        given: object = memories
        if isinstance(given, Memory):
            raise TypeError("give a list of memories, such as observe([memory]), got a Memory")
        if not memories and detail is None:
            return Observed([], (), None)
        for row, memory in enumerate(memories):
            if memory.id is not None:
                raise ValueError(f"memories[{row}] has an id, but the store sets ids. Remove it")
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
                return self._with_ids(judged, applied, reservoir)
            except BaseException:
                # Storing failed, so remove the chosen ones from the reservoir.
                for key in reservoir.kept[reservoir.kept < 0].tolist():
                    reservoir.discard(key)
                raise

    def merged(self, sources: Sequence[int], result: int) -> None:
        """Let the result of a merge represent what its first unique source represented."""
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
        """Remove memories from the reservoir file, so that nothing erased remains."""
        for left in self._file.parent.glob(f".{RESERVOIR_FILE}.*"):
            left.unlink(missing_ok=True)  # Left by a process that was killed while writing.
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
        """Write the reservoir to its file for the next start."""
        if self._reservoir is not None:
            generation = self._database.generation
            self._reservoir.generation = generation
            self._reservoir.identity = self._database.identity(generation) or ""
            self._reservoir.save(self._file)

    def _judge(self, memories: Sequence[Memory], reservoir: Reservoir) -> _BatchPlan:
        """Score the observations and offer them to the reservoir, in order."""
        batch = BatchScores(
            memories,
            self._database.dim,
            search=self._nearest,
            near=self._near,
            near_m=self._config.reservoir.cell_m,
            counts=self._retriever.label_counts(),
            weights=self._config.importance,
        )
        judged = _BatchPlan(self._database.generation, [], {}, [], {}, {}, {})
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
                why = FixedReason(sort="displaced")
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

    def _write(self, judged: _BatchPlan, detail: Mapping[str, Any] | None) -> OperationResult | None:
        """Store chosen observations and count the others; ``None`` if only counts changed."""
        counted = {id: seen for id, seen in judged.sights.items() if id >= 0}
        self._database.see(counted)
        if not judged.chosen and not judged.gone and detail is None:
            if self._database.pending.span_ns >= WAIT_NS:
                self._database.flush()
            return None
        there = self._retriever.there(np.array(list(judged.gone), dtype=np.int64))
        for id in np.array(list(judged.gone), dtype=np.int64)[~there].tolist():
            del judged.gone[id]
        passed_on = self._inherited_visits(judged)
        reason = FixedReason(sort="gave way").to_json()
        try:
            return self._database.apply(
                add=[
                    _with_visits(memory, judged.sights.get(key, [])) for key, memory in judged.chosen.items()
                ],
                remove=sorted(judged.gone),
                operation="observe",
                detail={"reason": reason, "kept": judged.why, **(detail or {})},
                seen=passed_on,
            )
        except BaseException:
            self._database.pending.take_back(counted)
            raise

    def _with_ids(
        self, judged: _BatchPlan, applied: OperationResult | None, reservoir: Reservoir
    ) -> Observed:
        """Replace keys by ids."""
        ids: dict[int, int] = {}
        if applied is not None:
            ids = dict(zip(judged.chosen, applied.ids, strict=True))
            reservoir.rename(ids)
            # Otherwise another process wrote meanwhile.
            self._up_to = applied.generation if self._only_counts_since(judged.start, applied) else -1
        kept = []
        for row, (decision, total) in enumerate(judged.decisions):
            like = judged.dropped.get(row, decision.like)
            stands = ids.get(like) if like is not None and like < 0 else like
            kept.append(Kept(ids.get(-1 - row), decision.why, total, stands, decision.similarity))
        return Observed(kept, tuple(sorted(judged.gone)), None if applied is None else applied.generation)

    def _inherited_visits(self, judged: _BatchPlan) -> dict[int, list[Visit]]:
        """Return the visits of replaced memories, by the stored memory that now represents them.

        Visits of this batch are added to the memory's own visits.
        """
        found: dict[int, list[Visit]] = {}
        for memory in self._database.get(sorted(judged.gone), vectors=False):
            like = judged.gone[memory.id or 0]
            if like is not None:
                target = found if like >= 0 else judged.sights
                target.setdefault(like, []).extend(known_visits(memory))
        return found

    def _only_counts_since(self, start: int, applied: OperationResult) -> bool:
        """True if only counts were written between two operations."""
        between = applied.generation - start - 1
        return not between or all(
            entry.operation == "seen" for entry in self._database.log(start, limit=between)
        )

    def _nearest(self, vectors: NDArray[np.float32], k: int, map_id: str) -> Neighbours:
        """Return the nearest memories of a map."""
        return self._retriever.neighbours(vectors, k, map_id=map_id)

    def _near(self, memory: Memory, radius_m: float) -> Neighbourhood:
        """Return memories of the same map, kind and label around a place."""
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
        return Neighbourhood(ids, np.hypot(away[:, 0], away[:, 1]))

    def _loaded(self) -> Reservoir:
        if self._reservoir is None:
            wanted = self._config.reservoir
            try:
                self._reservoir = Reservoir.load(self._file)
            except (OSError, ValueError):
                self._reservoir = Reservoir(wanted)  # Ignore a damaged cache.
            followed = self._reservoir.generation
            if self._reservoir.identity != self._database.identity(followed):
                self._reservoir = Reservoir(wanted)  # The file belongs to another store or another history.
            old = self._reservoir.config
            if (old.cell_m, old.window_s) == (wanted.cell_m, wanted.window_s):
                self._reservoir.config = wanted
            else:
                # Cells or windows changed, so old decisions do not apply.
                self._reservoir = Reservoir(wanted)
        return self._reservoir

    def _follow(self, reservoir: Reservoir) -> None:
        """Drop forgotten and gone memories, so that similar observations are new again."""
        if self._up_to == self._database.generation:
            return
        kept = reservoir.kept
        away = self._retriever.ids(Filter(states=AWAY))
        for key in kept[~self._retriever.there(kept) | np.isin(kept, away)].tolist():
            reservoir.discard(key)


def _with_visits(memory: Memory, sights: Sequence[Visit]) -> Memory:
    """Return a memory with the visits of the batch that it represents."""
    return (
        dataclasses.replace(memory, **ObservationSummary.of(memory).after(sights).fields())
        if sights
        else memory
    )
