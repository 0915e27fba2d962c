"""Vector search by the server: HNSW if there is such an index, otherwise comparing all.

Every function but :func:`make_index` runs within the caller's read transaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence.filters import judge
from memory.persistence.postgres import parts, search
from memory.persistence.rows import Slot
from memory.persistence.sql import Condition, where
from memory.query import Filter

#: Most numbers of a vector that the server can index.
MOST_DIM = 4000
#: Neighbours per vector in a graph, and candidates to choose them from. With pgvector's default of 64, some
#: of 200,000 vectors are unreachable at any effort.
NEIGHBOURS, CHOSEN_FROM = 16, 128
#: Neighbours kept per step through a graph of so many vectors for the usual aim; it grows with the square
#: root of their number. The server's maximum is 1000.
EFFORT, EFFORT_ROWS, USUAL, MOST_EFFORT = 200, 200_000, 0.95, 1000
#: Smallest number kept.
LEAST_EFFORT = 100
#: Most matches of a filter that are compared individually, without the graph.
FEW = 10_000
#: Multiples of ``k`` that are fetched within the bounds of a circle or polygon, until ``k`` are inside.
_JUDGED = (2, 8, 32)


class NearestVectors(NamedTuple):
    """Most similar memories, most similar first; equal ones by rising id.

    Attributes:
        ids: (n,) int64.
        scores: (n,) float32 cosines.
        indexed: True if the server's index was available.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    indexed: bool


def index_name(slot: Slot, first_id: int) -> str:
    """Return the name of the index over a slot's vectors in the part that begins with an id."""
    return f"embedding_hnsw_{slot.number}_{first_id}"


def effort(rows: float, k: int, aim: float) -> int:
    """Return the number of neighbours kept per step through a graph.

    Args:
        aim: share of them to find, below 1; an estimate from measurements that is not checked.
    """
    wanted = EFFORT * math.sqrt(rows / EFFORT_ROWS) * math.sqrt((1.0 - USUAL) / (1.0 - aim))
    return min(max(math.ceil(wanted), LEAST_EFFORT, 2 * k), MOST_EFFORT)


def prepare(connection: Any, slot: Slot, k: int, aim: float) -> bool:
    """Configure graph searches of the transaction; return True if a part has a complete graph.

    Vectors of the other parts are compared.
    """
    sql = (
        "SELECT max(c.reltuples) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        " WHERE i.indisvalid AND starts_with(c.relname, ?)"
        " AND c.relnamespace = current_schema()::regnamespace"
    )
    (rows,) = connection.execute(sql, (f"embedding_hnsw_{slot.number}_",)).fetchone()
    if rows is None:
        return False
    sql = (
        "SELECT set_config('hnsw.iterative_scan', 'strict_order', true),"
        " set_config('hnsw.ef_search', ?::text, true)"
    )
    connection.execute(sql, (str(effort(max(rows, 0.0), k, aim)),))
    return True


def within_parts(connection: Any, filter: Filter) -> list[Condition]:
    """Return the condition that limits a time filter to the parts with matching memories."""
    if filter.between_ns is None:
        return []
    first, last = filter.between_ns
    known = parts.spans(connection)
    some = [part for part, low, high in known if low <= last and high >= first]
    if len(some) == len(known):
        return []
    if not some:
        return [search.NOTHING]
    stretches = " OR ".join(f"({part.contains('e.id')})" for part in some)
    return [Condition(f"({stretches})", ())]


def search_nearest(
    connection: Any,
    slot: Slot,
    vector: NDArray[np.float32],
    k: int,
    filter: Filter,
    *,
    aim: float = USUAL,
) -> NearestVectors:
    """Return the most similar memories that pass a filter.

    If few match, they are compared. Otherwise the server walks its graph until enough pass (pgvector's
    iterative scans, in strict order); if it gives up before ``k``, all matches are compared. For a circle or
    polygon, the nearest within its bounds are fetched and then filtered.

    Args:
        connection: connection whose transaction reads nothing else.
        vector: (dim,) float32.
        aim: share of them to find; 1 compares all matches.
    """
    indexed = aim < 1.0 and prepare(connection, slot, k, aim)
    passed = search.row_conditions(connection, filter)
    wanted, few = [*passed, *search.by_place(filter)], False
    if indexed and wanted:
        clause, parameters = where(wanted)
        sql = f"SELECT count(*) FROM (SELECT FROM memory AS m{clause} LIMIT ?) AS s"
        (count,) = connection.execute(sql, (*parameters, FEW + 1)).fetchone()
        few = count <= FEW
    inside, joined = [] if few else within_parts(connection, filter), bool(wanted)
    judged = search.is_judged(filter)
    rows_of = partial(_rows, connection, slot, vector)
    if indexed and not few:
        ask = partial(rows_of, [*(passed if judged else wanted), *inside], joined)
        rows = _walk(ask, k, filter)
        if len(rows) == k:
            return _nearest(rows, indexed)
    # Without the graph; the other indexes are read by bitmaps.
    connection.execute("SET LOCAL enable_indexscan = off")
    if judged:
        found = search.select_ids(connection, filter)
        wanted, joined = [search.one_of("e.id", found.tolist())], False
    elif few:
        # Look up their vectors by id, because the server would plan a join over all vectors.
        clause, parameters = where(wanted)
        sql = f"e.id = ANY(ARRAY(SELECT m.id FROM memory AS m{clause}))"
        wanted, joined = [Condition(sql, tuple(parameters))], False
    return _nearest(_first(partial(rows_of, [*wanted, *inside], joined), k), indexed)


def _walk(ask: Callable[..., list[Any]], k: int, filter: Filter) -> list[Any]:
    """Return the ``k`` most similar rows of a walk through the graph; fewer if it gives up."""
    if not search.is_judged(filter):
        return _first(ask, k)
    for share in _JUDGED:
        rows = _first(partial(ask, places=True), share * k)
        points = np.array([row[2:] for row in rows], np.float64).reshape(-1, 2)
        kept = np.flatnonzero(judge(points, filter, np.ones(len(rows), np.bool_)))[:k]
        if len(kept) == k:
            return [rows[at] for at in kept]
        if len(rows) < share * k:
            break
    return []


def _first(ask: Callable[..., list[Any]], k: int) -> list[Any]:
    """Return the first ``k`` rows, sorting ties by content only if there are any.

    With that sort key, the server estimates 1/200 of all rows to be ties, and would rather compare millions
    of rows.
    """
    rows = ask(k + 1)
    if len({row[1] for row in rows}) < len(rows):
        return ask(k, equal_by_contents=True)
    return rows[:k]


def _rows(
    connection: Any,
    slot: Slot,
    vector: NDArray[np.float32],
    wanted: Sequence[Condition],
    joined: bool,
    k: int,
    *,
    places: bool = False,
    equal_by_contents: bool = False,
) -> list[Any]:
    kind = f"halfvec({slot.dim})"
    clause, parameters = where([Condition(f"e.slot = {slot.number}", ()), *wanted])
    join = " JOIN memory AS m ON m.id = e.id" if joined or equal_by_contents else ""
    equal = f", {search.by_contents('m')}" if equal_by_contents else ""
    sql = (
        f"SELECT e.id, e.half::{kind} <=> ?::{kind} AS away{', m.x, m.y' if places else ''}"
        f" FROM embedding AS e{join}{clause} ORDER BY away{equal} LIMIT ?"
    )
    text = "[" + ",".join(map(repr, vector.astype(np.float16).astype(float).tolist())) + "]"
    rows: list[Any] = connection.execute(sql, (text, *parameters, k)).fetchall()
    return rows


def _nearest(rows: Sequence[Any], indexed: bool) -> NearestVectors:
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    return NearestVectors(ids, (1.0 - np.array([row[1] for row in rows])).astype(np.float32), indexed)


def make_index(raw: Any, slot: Slot, first_id: int) -> None:
    """Create the index over a slot's vectors in a part while others read and write, if it is missing.

    Args:
        raw: psycopg connection outside a transaction.
        first_id: first id of the part.
    """
    name, kind = index_name(slot, first_id), f"halfvec({slot.dim})"
    sql = (
        f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON embedding_{first_id} USING hnsw"
        f" ((half::{kind}) halfvec_cosine_ops) WITH (m = {NEIGHBOURS}, ef_construction = {CHOSEN_FROM})"
        f" WHERE slot = {slot.number}"
    )
    # By default the number of processes follows the cost of reading the table, but building a graph is far
    # more work. max_parallel_maintenance_workers still limits it.
    raw.execute("SET min_parallel_table_scan_size = 0")
    try:
        raw.execute(sql)
    finally:
        raw.execute("RESET min_parallel_table_scan_size")
