"""Answers in an order that follows from what memories are, never from when they were stored.

Ids say in which order memories came to the store. The same memories imported in another order have other ids,
and must be answered alike. So equal scores are ordered by time, then by place, then by all that is said of a
memory; ids decide only between memories that are the same in all of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index import Plan
from memory.persistence.database import Database
from memory.query import Query
from memory.search.columns import ColumnCache
from memory.types import Hit, Memory, positions_of


class Ranking(NamedTuple):
    """Ids in the order in which they answer, with what they were compared by.

    Attributes:
        ids: (n,) int64.
        similarity: (n,) float32 cosines, or ``None`` where nothing was compared.
        text: (n,) float64, how well words fit, or ``None``.
        plan: how vectors were searched, or ``None``.
        fused: (n,) float64, what words and vectors make together, or ``None``.
        unknown: whether the sentence has a word that no memory has.
        share: of the rows that counted for an index that compares some; ``None`` where all were compared.
    """

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32] | None = None
    text: NDArray[np.float64] | None = None
    plan: Plan | None = None
    fused: NDArray[np.float64] | None = None
    unknown: bool = False
    share: float | None = None

    def of(self, ids: Sequence[int | None]) -> Ranking:
        """Only these of the ids."""
        return self.take(np.flatnonzero(np.isin(self.ids, np.array(ids, dtype=np.int64))))

    def take(self, places: NDArray[np.integer]) -> Ranking:
        """The entries at these places, in their order."""
        return Ranking(
            self.ids[places],
            None if self.similarity is None else self.similarity[places],
            None if self.text is None else self.text[places],
            self.plan,
            None if self.fused is None else self.fused[places],
            self.unknown,
            self.share,
        )


def ordered(database: Database, columns: ColumnCache, query: Query, found: Ranking) -> Ranking:
    """The first ``k`` in the order that the query has; of what it compares, the best ``k``."""
    known = columns.rows(found.ids) >= 0
    if not known.all():
        # What came or went after the columns were brought up to date.
        found = found.take(np.flatnonzero(known))
    order = query.ordered_by
    compared = next((part for part in (found.fused, found.similarity, found.text) if part is not None), None)
    if order == "relevance" and compared is not None:
        return found.take(first(database, columns, found.ids, -compared, query.k))
    rows = columns.rows(found.ids)
    if order == "recency":
        # Not minus, which the least number of 64 bits does not have.
        key = ~columns.column("time_ns")[rows]
    else:
        assert query.near is not None
        key = distances(columns.column("positions")[rows], query.near)
        # What is at no known place is neither near nor far.
        placed = np.flatnonzero(~np.isnan(key))
        if len(placed) < len(key):
            found, key = found.take(placed), key[placed]
    return found.take(first(database, columns, found.ids, key, query.k))


def first(
    database: Database, columns: ColumnCache, ids: NDArray[np.int64], keys: NDArray[Any], most: int
) -> NDArray[np.int64]:
    """Places of the smallest keys in their order, at most so many.

    Args:
        database: the truth, read where columns do not tell equal ones apart.
        columns: that have all of the ids.
        ids: (n,) of memories.
        keys: (n,) numbers.
        most: places.
    """
    places = np.arange(len(ids))
    if len(ids) > most:
        places = np.flatnonzero(keys <= np.partition(keys, most - 1)[most - 1])
    rows = columns.rows(ids[places])
    time, position = columns.column("time_ns")[rows], np.nan_to_num(columns.column("positions")[rows])
    by = (keys[places], time, *position.T)
    order = np.lexsort((ids[places], *by[::-1]))
    equal = np.all([part[order[1:]] == part[order[:-1]] for part in by], axis=0)
    if equal[:most].any():
        runs = np.concatenate([[0], np.cumsum(~equal)])
        # Runs of several that begin among those that are wanted.
        several = np.flatnonzero(
            (np.bincount(runs) > 1) & (np.searchsorted(runs, range(runs[-1] + 1)) < most)
        )
        doubtful = np.flatnonzero(np.isin(runs, several))
        known = {
            memory.id: memory
            for memory in database.present(ids[places[order[doubtful]]].tolist(), vectors=False)
        }
        said = [_contents(known.get(int(id))) for id in ids[places[order[doubtful]]]]
        resolved = sorted(range(len(doubtful)), key=lambda at: (runs[doubtful[at]], said[at]))
        order[doubtful] = order[doubtful[resolved]]
    found: NDArray[np.int64] = places[order[:most]]
    return found


def _contents(memory: Memory | None) -> tuple[Any, ...]:
    """What tells memories of one time and place apart; of one that was just removed, nothing."""
    if memory is None:
        return ()
    said = memory.map_id, memory.kind, memory.label, memory.caption, memory.evidence, memory.provenance
    payload = json.dumps(memory.payload, sort_keys=True, default=str)
    return (*said, payload, memory.yaw, memory.confidence, memory.reward, memory.state, memory.count)


def distances(positions: NDArray[np.float64], near: tuple[float, ...]) -> NDArray[np.float64]:
    """Metres from (n, 3) positions to a point of the plane or of space, at most the largest number.

    NaN from a position that is not known.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.linalg.norm(positions[:, : len(near)] - np.asarray(near), axis=1)
    return np.nan_to_num(found, copy=False, nan=np.nan, posinf=np.finfo(np.float64).max)


def hits_of(
    query: Query,
    found: Ranking,
    memories: Sequence[Memory],
    *,
    newest_ns: Callable[[], int],
    half_life_s: float,
    attention: Mapping[int, float] | None = None,
) -> list[Hit]:
    """The memories with their scores and what these are made of.

    Args:
        query: that was asked.
        found: its ids, with what was compared.
        memories: of these ids.
        newest_ns: the time that recency is measured from, asked for where it is needed.
        half_life_s: in which recency halves.
        attention: weights by id, of a query that aggregates vectors.
    """
    parts: list[dict[str, float]] = [{} for _ in memories]
    away = None
    if query.near is not None and memories:
        away = distances(positions_of(memories), query.near)
    told = {
        "similarity": found.similarity,
        "text": found.text,
        "fused": found.fused,
        "distance_m": away,
    }
    for name, values in told.items():
        if values is not None:
            for part, value in zip(parts, values.tolist(), strict=True):
                if not math.isnan(value):
                    part[name] = value
    if memories and (query.aggregate or query.ordered_by == "recency"):
        newest = newest_ns()
        for part, memory in zip(parts, memories, strict=True):
            age_s = max(newest - memory.time_ns, 0) / 1e9
            part["recency"] = 0.5 ** (age_s / half_life_s)
    # What hits are ordered by.
    compared = next((name for name in ("fused", "similarity", "text") if told[name] is not None), None)
    by = {"distance": "distance_m", "recency": "recency"}.get(query.ordered_by, compared)
    hits = []
    for memory, part in zip(memories, parts, strict=True):
        assert by is not None
        score = -part[by] if by == "distance_m" else part[by]
        weight = None if attention is None or memory.id is None else attention.get(memory.id, 0.0)
        hits.append(Hit(memory, score, part, weight))
    return hits
