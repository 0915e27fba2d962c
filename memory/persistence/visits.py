"""Visits of merged memories: one row of ``visited`` per memory with visits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import CorruptStoreError
from memory.persistence.checksums import VISITED
from memory.persistence.engine import engine_of
from memory.persistence.ids import among
from memory.persistence.sql import Connection
from memory.query import Filter
from memory.types import MOST_COUNT, Visit, check_visits

#: Bytes per visit: first_ns, last_ns and sights.
VISIT_BYTES = 24
INSERT = (
    "INSERT INTO visited (id, first_ns, last_ns, visits, crc) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET first_ns = excluded.first_ns, last_ns = excluded.last_ns,"
    " visits = excluded.visits, crc = excluded.crc"
)


class VisitTimes(NamedTuple):
    """Memories with a visit within a time range.

    Attributes:
        ids: (n,) int64, rising.
        first_ns: (n,) int64 time of the first observation within it.
    """

    ids: NDArray[np.int64]
    first_ns: NDArray[np.int64]


def pack(visits: Iterable[Visit]) -> bytes:
    """Return three little-endian int64 per visit."""
    return np.array(list(visits), dtype="<i8").tobytes()


def unpack(id: int, blob: bytes | None) -> tuple[Visit, ...]:
    """Return the visits of a memory; none without a row.

    Raises:
        CorruptStoreError: they are damaged.
    """
    if blob is None:
        return ()
    if not blob or len(blob) % VISIT_BYTES:
        raise CorruptStoreError(f"memory {id} has {len(blob)} bytes of visits. Run recall check --repair")
    try:
        rows = np.frombuffer(blob, "<i8").reshape(-1, 3)
        return check_visits(np.minimum(rows, (2**63 - 1, 2**63 - 1, MOST_COUNT)).tolist())
    except ValueError as error:
        raise CorruptStoreError(
            f"memory {id} has damaged visits ({error}). Run recall check --repair"
        ) from error


def write(connection: Connection, visits: Mapping[int, tuple[Visit, ...]]) -> None:
    """Set the visits of memories; those with none must not have a row."""
    rows = [(id, kept[0].first_ns, kept[-1].last_ns, pack(kept)) for id, kept in visits.items() if kept]
    if rows:
        connection.executemany(INSERT, [(*row, VISITED.sum(row[:3], row[3])) for row in rows])


def delete(connection: Connection, ids: Iterable[int]) -> None:
    """Delete the visits of memories."""
    connection.executemany("DELETE FROM visited WHERE id = ?", [(id,) for id in ids])


def visited_after(connection: Connection, time_ns: int) -> VisitTimes:
    """Return memories whose last visit ends after a time, with that end as ``first_ns``."""
    rows = connection.execute("SELECT id, last_ns FROM visited WHERE last_ns > ? ORDER BY id", (time_ns,))
    found = np.array(rows.fetchall(), dtype=np.int64).reshape(-1, 2)
    return VisitTimes(found[:, 0], found[:, 1])


def overlaps(connection: Connection, first_ns: int, last_ns: int) -> VisitTimes:
    """Return memories with a visit that overlaps a time range, both ends included."""
    # The index covers all but visits that began earlier, which are read in full.
    rows = connection.execute(
        "SELECT id, first_ns FROM visited WHERE first_ns BETWEEN ? AND ?", (first_ns, last_ns)
    ).fetchall()
    earlier = connection.execute(
        "SELECT id, visits FROM visited WHERE first_ns < ? AND last_ns >= ?", (first_ns, first_ns)
    )
    for id, blob in earlier:
        table = np.frombuffer(blob[: len(blob) // VISIT_BYTES * VISIT_BYTES], "<i8").reshape(-1, 3)
        at = int(np.searchsorted(table[:, 1], first_ns))
        if at < len(table) and table[at, 0] <= last_ns:
            rows.append((id, max(int(table[at, 0]), first_ns)))
    found = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
    return VisitTimes(found[:, 0], found[:, 1])


def select_seen(
    connection: Connection, filter: Filter, *, limit: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """Return memories that match, where the filter's time may be that of any known observation.

    A memory with visits matches if one of them overlaps the time range; others match by ``time_ns``.

    Returns:
        (n,) int64 ids in order of the first observation within the range, ties by id; and their number
        without the limit.
    """
    if filter.between_ns is None:
        raise ValueError("give between_ns, the time range of the observations")
    first, last = filter.between_ns
    engine = engine_of(connection)
    ids = engine.select_ids(connection, filter, order="oldest", limit=limit)
    full = limit is not None and len(ids) == limit
    total = engine.count_matches(connection, filter) if full else len(ids)
    merged = overlaps(connection, first, last)
    kept = engine.select_among(connection, replace(filter, between_ns=None), merged.ids)
    merged_ids, merged_first = merged.ids[kept], merged.first_ns[kept]
    if not len(merged_ids):
        return ids, total
    own = engine.times_of(connection, merged_ids)
    total += int(((own < first) | (own > last)).sum())
    # The limit kept enough of the others: merged memories only move to the front or are added.
    ids = ids[~among(ids, merged_ids)]
    found = np.concatenate([ids, merged_ids])
    when = np.concatenate([engine.times_of(connection, ids), merged_first])
    return found[np.lexsort((found, when))][:limit], total
