"""Order of hits, which depends on the memories and not on when they were stored.

The same memories imported in another order have other ids, but must be ranked equally. So equal scores are
ordered by time, then place, then all other fields. Ids decide only between identical memories.
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
    """Ids in ranked order, with their scores.

    Attributes:
        ids: (n,) int64.
        similarity: (n,) float32 cosine similarities, or ``None``.
        text: (n,) float64 text scores, or ``None``.
        plan: how vectors were searched, or ``None``.
        fused: (n,) float64 combined scores of text and vectors, or ``None``.
        unknown: True if no memory has some word of the sentence.
        share: share of the rows that an index considered; ``None`` if all were compared.
    """

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32] | None = None
    text: NDArray[np.float64] | None = None
    plan: Plan | None = None
    fused: NDArray[np.float64] | None = None
    unknown: bool = False
    share: float | None = None

    def of(self, ids: Sequence[int | None]) -> Ranking:
        """Keep only these ids."""
        return self.take(np.flatnonzero(np.isin(self.ids, np.array(ids, dtype=np.int64))))

    def take(self, places: NDArray[np.integer]) -> Ranking:
        """Return the entries at these places, in their order."""
        return Ranking(
            self.ids[places],
            None if self.similarity is None else self.similarity[places],
            None if self.text is None else self.text[places],
            self.plan,
            None if self.fused is None else self.fused[places],
            self.unknown,
            self.share,
        )


def rank_hits(database: Database, columns: ColumnCache, query: Query, found: Ranking) -> Ranking:
    """Return the first ``k`` in the order of the query."""
    known = columns.rows(found.ids) >= 0
    if not known.all():
        # Drop memories that changed after the columns were updated.
        found = found.take(np.flatnonzero(known))
    order = query.ordered_by
    compared = next((part for part in (found.fused, found.similarity, found.text) if part is not None), None)
    if order == "relevance" and compared is not None:
        return found.take(first(database, columns, found.ids, -compared, query.k))
    rows = columns.rows(found.ids)
    if order == "recency":
        # Negation could overflow.
        key = ~columns.column("time_ns")[rows]
    else:
        assert query.near is not None
        key = distances(columns.column("positions")[rows], query.near)
        # Drop memories without a position.
        placed = np.flatnonzero(~np.isnan(key))
        if len(placed) < len(key):
            found, key = found.take(placed), key[placed]
    return found.take(first(database, columns, found.ids, key, query.k))


def first(
    database: Database, columns: ColumnCache, ids: NDArray[np.int64], keys: NDArray[Any], most: int
) -> NDArray[np.int64]:
    """Return the places of the smallest keys in order.

    Args:
        database: read only to order equal memories.
        columns: columns that contain all ids.
        ids: (n,) ids.
        keys: (n,) numbers.
        most: maximum number of places.
    """
    places = np.arange(len(ids))
    if len(ids) > most:
        places = np.flatnonzero(keys <= np.partition(keys, most - 1)[most - 1])
    order = np.argsort(keys[places])
    ranked = keys[places[order]]
    if (ranked[1:] > ranked[:-1]).all():
        return places[order[:most]]  # Nothing is equal, so nothing else decides.
    rows = columns.rows(ids[places])
    time, position = columns.column("time_ns")[rows], np.nan_to_num(columns.column("positions")[rows])
    by = (keys[places], time, *position.T)
    order = np.lexsort((ids[places], *by[::-1]))
    equal = np.all([part[order[1:]] == part[order[:-1]] for part in by], axis=0)
    if equal[:most].any():
        runs = np.concatenate([[0], np.cumsum(~equal)])
        # Runs of equal keys that begin among the first ones.
        several = np.flatnonzero(
            (np.bincount(runs) > 1) & (np.searchsorted(runs, range(runs[-1] + 1)) < most)
        )
        doubtful = np.flatnonzero(np.isin(runs, several))
        known = {
            memory.id: memory
            for memory in database.present(ids[places[order[doubtful]]].tolist(), vectors=False)
        }
        contents = [_contents(known.get(int(id))) for id in ids[places[order[doubtful]]]]
        resolved = sorted(range(len(doubtful)), key=lambda at: (runs[doubtful[at]], contents[at]))
        order[doubtful] = order[doubtful[resolved]]
    found: NDArray[np.int64] = places[order[:most]]
    return found


def _contents(memory: Memory | None) -> tuple[Any, ...]:
    """Return the fields that order memories of equal time and place; empty if just removed."""
    if memory is None:
        return ()
    texts = memory.map_id, memory.kind, memory.label, memory.caption, memory.evidence, memory.provenance
    payload = json.dumps(memory.payload, sort_keys=True, default=str)
    return (*texts, payload, memory.yaw, memory.confidence, memory.reward, memory.state, memory.count)


def distances(positions: NDArray[np.float64], near: tuple[float, ...]) -> NDArray[np.float64]:
    """Return distances in metres from (n, 3) positions to a point with 2 or 3 coordinates; NaN if unknown."""
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
    """Return the memories as hits with scores and their parts.

    Args:
        query: the query.
        found: ranked ids.
        memories: memories of these ids.
        newest_ns: returns the reference time of recency, called only if needed.
        half_life_s: half-life of recency in seconds.
        attention: attention weights by id.
    """
    parts: list[dict[str, float]] = [{} for _ in memories]
    away = None
    if query.near is not None and memories:
        away = distances(positions_of(memories), query.near)
    columns = {
        "similarity": found.similarity,
        "text": found.text,
        "fused": found.fused,
        "distance_m": away,
    }
    for name, values in columns.items():
        if values is not None:
            for part, value in zip(parts, values.tolist(), strict=True):
                if not math.isnan(value):
                    part[name] = value
    if memories and (query.aggregate or query.ordered_by == "recency"):
        newest = newest_ns()
        for part, memory in zip(parts, memories, strict=True):
            age_s = max(newest - memory.time_ns, 0) / 1e9
            part["recency"] = 0.5 ** (age_s / half_life_s)
    # The part that determines the order.
    compared = next((name for name in ("fused", "similarity", "text") if columns[name] is not None), None)
    by = {"distance": "distance_m", "recency": "recency"}.get(query.ordered_by, compared)
    hits = []
    for memory, part in zip(memories, parts, strict=True):
        assert by is not None
        score = -part[by] if by == "distance_m" else part[by]
        weight = None if attention is None or memory.id is None else attention.get(memory.id, 0.0)
        hits.append(Hit(memory, score, part, weight))
    return hits
