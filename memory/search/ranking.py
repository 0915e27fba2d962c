"""Answers in an order that follows from what memories are, never from when they were stored.

Ids say in which order memories came to the store. The same memories imported in another order have other ids,
and must be answered alike. So equal scores are ordered by time, then by place, then by all that is said of a
memory; ids decide only between memories that are the same in all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index import Plan
from memory.persistence.database import Database
from memory.query import Query
from memory.search.columns import ColumnCache
from memory.types import Memory


class Found(NamedTuple):
    """Ids in the order in which they answer.

    Attributes:
        ids: (n,) int64.
        similarity: (n,) float32 cosines, or ``None`` where nothing was compared.
        text: (n,) float64, how well words fit, or ``None``.
        plan: how vectors were searched, or ``None``.
        fused: (n,) float64, what words and vectors make together, or ``None``.
        unknown: whether the sentence has a word that no memory has.
    """

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32] | None = None
    text: NDArray[np.float64] | None = None
    plan: Plan | None = None
    fused: NDArray[np.float64] | None = None
    unknown: bool = False

    def of(self, ids: Sequence[int | None]) -> Found:
        """Only these of the ids."""
        return self.take(np.flatnonzero(np.isin(self.ids, np.array(ids, dtype=np.int64))))

    def take(self, places: NDArray[np.integer]) -> Found:
        """The entries at these places, in their order."""
        return Found(
            self.ids[places],
            None if self.similarity is None else self.similarity[places],
            None if self.text is None else self.text[places],
            self.plan,
            None if self.fused is None else self.fused[places],
            self.unknown,
        )


def ordered(database: Database, columns: ColumnCache, query: Query, found: Found) -> Found:
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
