"""Questions to the tables; every function works within the caller's read transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence.filters import (
    Condition,
    Filter,
    candidate_queries,
    column_conditions,
    in_polygon,
    index_conditions,
    is_any,
    match_expression,
)
from memory.persistence.records import SLOTS, Slot
from memory.persistence.tables import Vectors, as_vectors, chunks

Order = Literal["id", "newest", "oldest"]
ORDERS: dict[Order, str] = {
    "id": "m.id",
    "newest": "m.time_ns DESC, m.id DESC",
    "oldest": "m.time_ns, m.id",
}
#: Rows that an estimate looks at.
SAMPLE = 512
#: Entries of an index that an estimate counts.
COUNTED = 2048
#: Pairs of map and label that are each asked for their newest.
PAIRS = 64


class Columns(NamedTuple):
    """Columns of memories in the order of their ids, for caches in RAM.

    Attributes:
        ids: (n,) int64.
        time_ns: (n,) int64.
        positions: (n, 3) float64, metres.
        yaw: (n,) float64, radians.
        confidence, reward, importance: (n,) float64; NaN where there is no importance.
        marked: (n,) bool.
        counts, access_counts: (n,) int64.
        accessed_ns: (n,) int64; ``time_ns`` where it never was.
        map_ids, labels, kinds, states: n strings each.
    """

    ids: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    positions: NDArray[np.float64]
    yaw: NDArray[np.float64]
    confidence: NDArray[np.float64]
    reward: NDArray[np.float64]
    importance: NDArray[np.float64]
    marked: NDArray[np.bool_]
    counts: NDArray[np.int64]
    access_counts: NDArray[np.int64]
    accessed_ns: NDArray[np.int64]
    map_ids: list[str]
    labels: list[str]
    kinds: list[str]
    states: list[str]


class TextHits(NamedTuple):
    """Memories by how well their words fit.

    Attributes:
        ids: (n,) int64, the best first.
        scores: (n,) float64, BM25 with the sign that larger is better.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]


def where(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """A WHERE clause and its parameters."""
    if not conditions:
        return "", []
    parameters = [value for condition in conditions for value in condition.parameters]
    return " WHERE " + " AND ".join(condition.sql for condition in conditions), parameters


def read_maps(connection: sqlite3.Connection) -> list[str]:
    """The maps that there are, by one look into the index each."""
    rows = connection.execute(
        "WITH RECURSIVE maps (map_id) AS (SELECT min(map_id) FROM memory UNION ALL"
        " SELECT (SELECT min(map_id) FROM memory WHERE map_id > maps.map_id) FROM maps"
        " WHERE map_id IS NOT NULL)"
        " SELECT map_id FROM maps WHERE map_id IS NOT NULL"
    )
    return [map_id for (map_id,) in rows]


def conditions_of(connection: sqlite3.Connection, filter: Filter) -> list[Condition]:
    """All conditions, with the maps named where an index over maps could then serve."""
    found = index_conditions(filter) + column_conditions(filter)
    if filter.map_id is None and (filter.labels is not None or filter.between_ns is not None):
        maps = json.dumps(read_maps(connection))
        found.append(Condition("m.map_id IN (SELECT value FROM json_each(?))", (maps,)))
    return found


def select_ids(
    connection: sqlite3.Connection, filter: Filter, *, order: Order = "id", limit: int | None = None
) -> NDArray[np.int64]:
    """Ids of the memories that match, in an order."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}; got {order!r}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit must not be negative, got {limit}")
    if filter.polygon is not None:
        return select_in_polygon(connection, filter, order)[:limit]
    if limit is not None and order != "id" and filter.text is None and filter.bounds is None:
        pairs = pairs_of(connection, filter)
        if pairs is not None:
            return select_by_pair(connection, filter, pairs, order, limit)
    clause, parameters = where(conditions_of(connection, filter))
    sql = f"SELECT m.id FROM memory AS m{clause} ORDER BY {ORDERS[order]} LIMIT ?"
    rows = connection.execute(sql, [*parameters, -1 if limit is None else limit]).fetchall()
    return np.array([id for (id,) in rows], dtype=np.int64)


def select_in_polygon(connection: sqlite3.Connection, filter: Filter, order: Order) -> NDArray[np.int64]:
    """The same with a polygon, which SQL knows by its bounds only."""
    assert filter.polygon is not None
    clause, parameters = where(conditions_of(connection, filter))
    sql = f"SELECT m.id, m.x, m.y FROM memory AS m{clause} ORDER BY {ORDERS[order]}"
    rows = connection.execute(sql, parameters).fetchall()
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    points = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 2)
    return ids[in_polygon(points, filter.polygon)]


def pairs_of(connection: sqlite3.Connection, filter: Filter) -> list[tuple[str, str | None]] | None:
    """Maps and labels to ask one by one; ``None`` where they are too many."""
    maps = read_maps(connection) if filter.map_id is None else [filter.map_id]
    labels: Sequence[str | None] = [None] if filter.labels is None else sorted(set(filter.labels))
    return None if len(maps) * len(labels) > PAIRS else list(product(maps, labels))


def select_by_pair(
    connection: sqlite3.Connection,
    filter: Filter,
    pairs: Sequence[tuple[str, str | None]],
    order: Order,
    limit: int,
) -> NDArray[np.int64]:
    """The newest or oldest of each map and label from the end of its index, then of all."""
    found: list[tuple[int, int]] = []
    rest = Filter(
        between_ns=filter.between_ns,
        kinds=filter.kinds,
        states=filter.states,
        min_confidence=filter.min_confidence,
        marked=filter.marked,
    )
    for map_id, label in pairs:
        here = [Condition("m.map_id = ?", (map_id,))]
        if label is not None:
            here.append(Condition("m.label = ?", (label,)))
        clause, parameters = where(here + column_conditions(rest))
        index = "memory_time" if label is None else "memory_label"
        source = f"memory AS m INDEXED BY {index}{clause}"
        sql = f"SELECT m.time_ns, m.id FROM {source} ORDER BY {ORDERS[order]} LIMIT ?"
        found += connection.execute(sql, [*parameters, limit]).fetchall()
    found.sort(reverse=order == "newest")
    return np.array([id for _, id in found[:limit]], dtype=np.int64)


def count_matches(connection: sqlite3.Connection, filter: Filter) -> int:
    """How many match, exactly."""
    if filter.polygon is not None:
        return len(select_in_polygon(connection, filter, "id"))
    clause, parameters = where(conditions_of(connection, filter))
    return int(connection.execute(f"SELECT count(*) FROM memory AS m{clause}", parameters).fetchone()[0])


def estimate_matches(connection: sqlite3.Connection, filter: Filter) -> int:
    """How many match, about, at a cost that does not grow with the store.

    Two looks: what share of evenly spread rows matches, and the shortest of the index ranges of the parts,
    counted up to ``COUNTED``. Never below 1 unless a part has nothing; the polygon counts by its bounds, and
    text that more have as ``COUNTED``.
    """
    conditions = column_conditions(filter)
    shortest = COUNTED
    for sql, bound in candidate_queries(filter):
        bounded = f"SELECT count(*) FROM ({sql} LIMIT ?)"
        shortest = min(shortest, connection.execute(bounded, (*bound, COUNTED)).fetchone()[0])
    if filter.kinds is not None:
        kinds = [is_any("m.kind", filter.kinds)]
        shortest = min(shortest, count_up_to(connection, kinds, COUNTED))
    pairs = pairs_of(connection, filter)
    if pairs is not None and (filter.labels is not None or filter.between_ns is not None):
        counted = 0
        for map_id, label in pairs:
            here = Filter(
                map_id=map_id, labels=None if label is None else [label], between_ns=filter.between_ns
            )
            counted += count_up_to(connection, column_conditions(here), COUNTED)
        shortest = min(shortest, counted)
    if shortest == 0:
        return 0
    first, last = connection.execute(
        "SELECT (SELECT min(id) FROM memory), (SELECT max(id) FROM memory)"
    ).fetchone()
    if first is None:
        return 0
    spread = np.unique(np.linspace(first, last, SAMPLE).astype(np.int64)).tolist()
    tests = [f"({condition.sql})" for condition in conditions] or ["1"]
    values = [value for condition in conditions for value in condition.parameters]
    row = connection.execute(
        f"SELECT total({' AND '.join(tests)}), {', '.join(f'total({test})' for test in tests)}"
        " FROM json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value",
        [*values, *values, json.dumps(spread)],
    ).fetchone()
    hits, *singly = row
    # Few hits of all parts together are a poor measure: then as if the parts were independent.
    share = hits / len(spread) if hits >= 8 else float(np.prod([one / len(spread) for one in singly]))
    sampled: int = round(share * (last - first + 1))
    if shortest < COUNTED:
        # A range that is the only part was counted, which beats a sample.
        return shortest if len(conditions) <= 1 else max(1, min(shortest, sampled))
    if filter.text is not None:
        # The sample does not look at words.
        return min(max(sampled, 1), COUNTED)
    return max(1, sampled)


def count_up_to(connection: sqlite3.Connection, conditions: Sequence[Condition], most: int) -> int:
    """How many match, but stop at ``most``."""
    clause, parameters = where(conditions)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM memory AS m{clause} LIMIT ?)"
    return int(connection.execute(sql, [*parameters, most]).fetchone()[0])


def search_words(
    connection: sqlite3.Connection, text: str, filter: Filter, *, limit: int, any_word: bool
) -> TextHits:
    """The memories whose label and caption fit the words best, among those that match the filter."""
    expression = match_expression(text, any_word=any_word)
    if expression is None:
        return TextHits(np.zeros(0, np.int64), np.zeros(0))
    clause, parameters = where([Condition("words MATCH ?", (expression,)), *column_conditions(filter)])
    sql = (
        "SELECT m.id, -bm25(words) AS score, m.x, m.y FROM words CROSS JOIN memory AS m ON m.id = words.rowid"
        f"{clause} ORDER BY score DESC, m.id LIMIT ?"
    )
    rows = connection.execute(sql, [*parameters, -1 if filter.polygon is not None else limit]).fetchall()
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    scores = np.array([row[1] for row in rows], dtype=np.float64)
    if filter.polygon is not None:
        inside = in_polygon(
            np.array([row[2:] for row in rows], dtype=np.float64).reshape(-1, 2), filter.polygon
        )
        ids, scores = ids[inside][:limit], scores[inside][:limit]
    if filter.text is not None:
        both = np.isin(ids, select_ids(connection, filter))
        ids, scores = ids[both], scores[both]
    return TextHits(ids, scores)


def scan_vectors(connection: sqlite3.Connection, slot: Slot, *, after_id: int, limit: int) -> Vectors:
    """Vectors of one slot in the order of their ids."""
    rows = connection.execute(
        f"SELECT key, half FROM vector WHERE key >= ? AND key % {SLOTS} = ? ORDER BY key LIMIT ?",
        (SLOTS * (after_id + 1), slot.number, limit),
    ).fetchall()
    return as_vectors([key // SLOTS for key, _ in rows], [half for _, half in rows], slot.dim)


def scan_columns(
    connection: sqlite3.Connection, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
) -> Columns:
    """Columns of memories in the order of their ids: a stretch, or those of ``ids`` that are there."""
    select = (
        "SELECT m.id, m.time_ns, m.x, m.y, m.z, m.yaw, m.confidence, m.reward, m.importance,"
        " m.marked, m.count,"
        " m.access_count, coalesce(m.accessed_ns, m.time_ns), m.map_id, m.label, m.kind, m.state FROM "
    )
    if ids is None:
        sql = select + "memory AS m WHERE m.id > ? ORDER BY m.id LIMIT ?"
        rows = connection.execute(sql, (after_id, limit)).fetchall()
    else:
        rows = []
        for chunk in chunks(sorted(set(ids))):
            sql = select + "json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value ORDER BY m.id"
            rows += connection.execute(sql, (json.dumps(chunk),)).fetchall()
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * 17

    def integers(at: int) -> NDArray[np.int64]:
        return np.array(columns[at], dtype=np.int64)

    def floats(at: int) -> NDArray[np.float64]:
        return np.array(columns[at], dtype=np.float64)

    return Columns(
        ids=integers(0),
        time_ns=integers(1),
        positions=np.stack([floats(2), floats(3), floats(4)], axis=1),
        yaw=floats(5),
        confidence=floats(6),
        reward=floats(7),
        importance=floats(8),
        marked=np.array(columns[9], dtype=bool),
        counts=integers(10),
        access_counts=integers(11),
        accessed_ns=integers(12),
        map_ids=list(columns[13]),
        labels=list(columns[14]),
        kinds=list(columns[15]),
        states=list(columns[16]),
    )
