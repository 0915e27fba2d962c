"""What was seen within a time: by any of the visits of a memory, not by when it was stored alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memory.persistence import visits
from memory.persistence.engine import engine_of
from memory.persistence.sql import Connection
from memory.persistence.sqlite.search import among
from memory.query import Filter


def select_seen(
    connection: Connection, filter: Filter, *, limit: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """Memories that match, with the filter's time as that of any of their sights that is known.

    A memory with visits is there where one of them shares a nanosecond with the time; others, and those of
    stores from before there were visits, by ``time_ns``.

    Returns:
        (n,) int64 ids in the order of when they were first seen within it, ties by id; and how many there
        are, whatever the limit.
    """
    if filter.between_ns is None:
        raise ValueError("between_ns is needed: it says when the memories were seen")
    first, last = filter.between_ns
    engine = engine_of(connection)
    ids = engine.select_ids(connection, filter, order="oldest", limit=limit)
    full = limit is not None and len(ids) == limit
    total = engine.count_matches(connection, filter) if full else len(ids)
    merged = visits.overlapping(connection, first, last)
    kept = engine.select_among(connection, replace(filter, between_ns=None), merged.ids)
    merged_ids, merged_first = merged.ids[kept], merged.first_ns[kept]
    if not len(merged_ids):
        return ids, total
    own = engine.times_of(connection, merged_ids)
    total += int(((own < first) | (own > last)).sum())
    # Of the others the limit left all that count: merged ones only move to the front, or come in addition.
    ids = ids[~among(ids, merged_ids)]
    found = np.concatenate([ids, merged_ids])
    when = np.concatenate([engine.times_of(connection, ids), merged_first])
    return found[np.lexsort((found, when))][:limit], total
