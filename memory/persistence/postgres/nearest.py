"""Similar vectors, found by the server: HNSW where there is such an index, by comparing all where not.

Every function but :func:`make_index` works within the caller's read transaction.
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

#: Numbers of a vector that the server's index takes.
MOST_DIM = 4000
#: How a graph is made: neighbours that a vector has, and that are looked at to choose them. With pgvector's
#: own 64, some of 200,000 vectors are found from nowhere, whatever the effort.
NEIGHBOURS, CHOSEN_FROM = 16, 128
#: Neighbours that a step through a graph of so many vectors keeps for the usual aim; of others it grows with
#: the root of their number. The server takes no more than a thousand.
EFFORT, EFFORT_ROWS, USUAL, MOST_EFFORT = 200, 200_000, 0.95, 1000
#: Fewer are never kept.
LEAST_EFFORT = 100
#: Memories that match a filter and are compared one by one, without the graph.
FEW = 10_000
#: Memories within the bounds of a circle or polygon that are looked at, times ``k``, until ``k`` lie in it.
_JUDGED = (2, 8, 32)


class NearestVectors(NamedTuple):
    """What is most similar to a vector, the most similar first and equal ones by rising id.

    Attributes:
        ids: (n,) int64.
        scores: (n,) float32 cosines.
        indexed: whether the server's index was there to be used.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    indexed: bool


def index_name(slot: Slot, first_id: int) -> str:
    """Of the index over the vectors of a slot in the part that begins with an id."""
    return f"embedding_hnsw_{slot.number}_{first_id}"


def effort(rows: float, k: int, aim: float) -> int:
    """Neighbours that a step through a graph keeps.

    Args:
        rows: vectors in it.
        k: how many are asked for.
        aim: share of them to find, below 1. It is aimed at, by what was measured; nothing checks it.
    """
    wanted = EFFORT * math.sqrt(rows / EFFORT_ROWS) * math.sqrt((1.0 - USUAL) / (1.0 - aim))
    return min(max(math.ceil(wanted), LEAST_EFFORT, 2 * k), MOST_EFFORT)


def prepare(connection: Any, slot: Slot, k: int, aim: float) -> bool:
    """Set how searches of the transaction walk graphs; whether a part has one that is whole.

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
    """What limits a filter by time to the parts that have something of it."""
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
    """The most similar memories that pass a filter.

    Where few match, they are compared. Otherwise the server goes on through its graph until enough pass
    (pgvector's iterative scans, in strict order); where it gives up before there are ``k``, all that match
    are compared. In a circle or polygon are those of the nearest within its bounds that lie in it.

    Args:
        connection: to read from, and nothing else within the transaction.
        slot: whose vectors.
        vector: (dim,) float32.
        k: how many.
        filter: that they pass.
        aim: share of them to find; at 1 all that match are compared, whatever index there is.
    """
    indexed = aim < 1.0 and prepare(connection, slot, k, aim)
    passed = search.passed(connection, filter)
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
        rows = _walked(ask, k, filter)
        if len(rows) == k:
            return _nearest(rows, indexed)
    # Without the graph: the other indexes are read by bitmaps.
    connection.execute("SET LOCAL enable_indexscan = off")
    if judged:
        found = search.select_ids(connection, filter)
        wanted, joined = [search.one_of("e.id", found.tolist())], False
    elif few:
        # Their vectors are looked up by id: a join is taken to be of all vectors, and reads them.
        clause, parameters = where(wanted)
        sql = f"e.id = ANY(ARRAY(SELECT m.id FROM memory AS m{clause}))"
        wanted, joined = [Condition(sql, tuple(parameters))], False
    return _nearest(_first(partial(rows_of, [*wanted, *inside], joined), k), indexed)


def _walked(ask: Callable[..., list[Any]], k: int, filter: Filter) -> list[Any]:
    """The ``k`` most similar of a walk through the graph; fewer where it gives up."""
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
    """The first ``k`` rows, asked for the order of equal ones only where there are such.

    Asked for it, the server takes one two-hundredth of all rows to be equal, so that of millions it would
    rather compare all.
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
    """Make the index over the vectors of a slot in a part while others read and write, unless there is one.

    Args:
        raw: a connection of psycopg outside a transaction.
        slot: whose vectors.
        first_id: of the part.
    """
    name, kind = index_name(slot, first_id), f"halfvec({slot.dim})"
    sql = (
        f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON embedding_{first_id} USING hnsw"
        f" ((half::{kind}) halfvec_cosine_ops) WITH (m = {NEIGHBOURS}, ef_construction = {CHOSEN_FROM})"
        f" WHERE slot = {slot.number}"
    )
    # By default the server takes as many processes as reading the table is worth; making a graph is far more
    # work. max_parallel_maintenance_workers still bounds them.
    raw.execute("SET min_parallel_table_scan_size = 0")
    try:
        raw.execute(sql)
    finally:
        raw.execute("RESET min_parallel_table_scan_size")
