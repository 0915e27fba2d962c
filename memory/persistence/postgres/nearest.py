"""Similar vectors, found by the server: HNSW where there is such an index, by comparing all where not.

Every function but :func:`make_index` works within the caller's read transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence.filters import Condition
from memory.persistence.postgres import searching
from memory.persistence.reading import where
from memory.persistence.records import Slot
from memory.query import Filter

#: Numbers of a vector that the server's index takes.
MOST_DIM = 4000
#: Neighbours that a step through the graph keeps; the server takes no more than a thousand.
EFFORT, MOST_EFFORT = 100, 1000


class Nearest(NamedTuple):
    """What is most similar to a vector, the most similar first and equal ones by rising id.

    Attributes:
        ids: (n,) int64.
        scores: (n,) float32 cosines.
        indexed: whether the server's index was there to be used.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    indexed: bool


def index_name(slot: Slot) -> str:
    """Of the index over the vectors of a slot."""
    return f"embedding_hnsw_{slot.number}"


def has_index(connection: Any, slot: Slot) -> bool:
    """Whether there is one that is whole."""
    sql = (
        "SELECT 1 FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indisvalid AND"
        " c.relname = ? AND c.relnamespace = current_schema()::regnamespace"
    )
    return connection.execute(sql, (index_name(slot),)).fetchone() is not None


def search(
    connection: Any, slot: Slot, vector: NDArray[np.float32], k: int, filter: Filter, *, exact: bool = False
) -> Nearest:
    """The most similar memories that pass a filter.

    The server goes on through its graph until enough pass (pgvector's iterative scans, in strict order).
    Where it gives up before there are ``k``, all that match are compared.

    Args:
        connection: to read from.
        slot: whose vectors.
        vector: (dim,) float32.
        k: how many.
        filter: that they pass.
        exact: compare all that match, whatever index there is.
    """
    parts = searching.conditions(connection, filter)
    if searching.is_judged(filter):
        parts = [searching.one_of("m.id", searching.select_ids(connection, filter).tolist())]
    indexed = has_index(connection, slot) and not exact
    if indexed:
        effort = min(max(EFFORT, 2 * k), MOST_EFFORT)
        connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
        connection.execute(f"SET LOCAL hnsw.ef_search = {effort}")
        found = _rows(connection, slot, vector, k, parts)
        if len(found) == k:
            return _nearest(found, indexed)
    # Without the graph: the other indexes are read by bitmaps.
    connection.execute("SET LOCAL enable_indexscan = off")
    found = _rows(connection, slot, vector, k, parts)
    connection.execute("SET LOCAL enable_indexscan = on")
    return _nearest(found, indexed)


def _rows(
    connection: Any, slot: Slot, vector: NDArray[np.float32], k: int, parts: Sequence[Condition]
) -> list[Any]:
    kind = f"halfvec({slot.dim})"
    clause, parameters = where([Condition(f"e.slot = {slot.number}", ()), *parts])
    join = " JOIN memory AS m ON m.id = e.id" if parts else ""
    sql = (
        f"SELECT e.id, e.half::{kind} <=> ?::{kind} AS away FROM embedding AS e{join}{clause}"
        " ORDER BY away, e.id LIMIT ?"
    )
    text = "[" + ",".join(map(repr, vector.astype(np.float16).astype(float).tolist())) + "]"
    rows: list[Any] = connection.execute(sql, (text, *parameters, k)).fetchall()
    return rows


def _nearest(rows: Sequence[Any], indexed: bool) -> Nearest:
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    return Nearest(ids, (1.0 - np.array([row[1] for row in rows])).astype(np.float32), indexed)


def make_index(raw: Any, slot: Slot) -> None:
    """Make the index over the vectors of a slot while others read and write; nothing where there is one.

    Args:
        raw: a connection of psycopg outside a transaction.
        slot: whose vectors.
    """
    name, kind = index_name(slot), f"halfvec({slot.dim})"
    sql = (
        f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON embedding USING hnsw"
        f" ((half::{kind}) halfvec_cosine_ops) WHERE slot = {slot.number}"
    )
    raw.execute(sql)
