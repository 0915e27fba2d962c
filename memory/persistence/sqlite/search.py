"""Filters and word search in SQLite; every function runs within the caller's read transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.persistence.filters import column_conditions, judge
from memory.persistence.ids import among, chunks
from memory.persistence.rows import ORDERS, RANKED, Order, TextHits
from memory.persistence.sql import Condition, read_maps, where
from memory.persistence.sqlite import places
from memory.persistence.sqlite.text_index import expression as expression_of
from memory.query import Filter
from memory.types import SLOWEST_M_S

#: Condition that an object moves; NULL if its velocity is unknown.
MOVING = "({x} * {x} + {y} * {y} >= {least!r})".format(
    x="json_extract(m.velocity, '$[0]')", y="json_extract(m.velocity, '$[1]')", least=SLOWEST_M_S**2
)
#: Index entries counted to decide whether something is common.
COUNTED = 2048
#: Most ids of a place or of words that are looked up individually; more are compared with the columns.
FEW = 16384
#: Most ids that are each looked up in the text index, instead of reading all memories with common words.
PROBES = 1024
#: Weight that FTS5 gives a word in half of the memories or more, and the smallest score with another word. If
#: all words are common, scores are scaled to weight 1, because they would show as 0.
COMMON_WEIGHT, COMMON_SCORE = 1e-6, 1e-3
#: Rows compared with such ids at first.
STRETCH = 1024
#: Most pairs of map and label that are queried individually.
PAIRS = 64


def is_any(column: str, values: Sequence[Any]) -> Condition:
    """Return the condition ``column IN values``, for any number of values."""
    if len(values) <= 100:
        return Condition(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))
    return Condition(f"{column} IN (SELECT value FROM json_each(?))", (json.dumps(list(values)),))


def row_conditions(filter: Filter) -> list[Condition]:
    """Return the conditions on columns of ``memory``."""
    return column_conditions(filter, is_any, MOVING)


def conditions_of(connection: sqlite3.Connection, filter: Filter) -> list[Condition]:
    """Return the column conditions, with the maps listed if an index over maps could then help."""
    found = row_conditions(filter)
    if filter.map_id is None and (filter.labels is not None or filter.between_ns is not None):
        found.append(is_any("m.map_id", read_maps(connection)))
    return found


def place_ids(connection: sqlite3.Connection, filter: Filter) -> NDArray[np.int64] | None:
    """Return the rising ids in the filter's place, or ``None`` if it has none."""
    if filter.bounds is None:
        return None
    placed = places.within(connection, filter.bounds)
    return placed.ids[judge(placed.points, filter, np.ones(len(placed.ids), np.bool_))]


def word_ids(
    connection: sqlite3.Connection,
    text: str,
    *,
    any_word: bool = False,
    here: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the rising ids of the memories with the words, all of them or any.

    Args:
        text: the words; nothing in it is syntax.
        any_word: True if one word is enough.
        here: ids to restrict the search to, as a hint.
    """
    expression = expression_of(connection, text, any_word=any_word)
    if expression is None:
        return np.zeros(0, np.int64)
    condition = Condition("words MATCH ?", (expression,))
    if here is not None and len(here) <= PROBES:
        common = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
        if connection.execute(common, (expression, COUNTED)).fetchone()[0] == COUNTED:
            some = "words MATCH ? AND words.rowid IN (SELECT value FROM json_each(?))"
            condition = Condition(some, (expression, json.dumps(here.tolist())))
    ids = fetch_ids(connection, f"SELECT rowid AS id FROM words WHERE {condition.sql}", condition.parameters)
    # The ids are mostly sorted, which a stable sort exploits.
    return np.sort(ids, kind="stable")


def indexed_ids(connection: sqlite3.Connection, filter: Filter) -> NDArray[np.int64] | None:
    """Return the rising ids that match place and words, or ``None`` if the filter has neither."""
    here = place_ids(connection, filter)
    if filter.text is None:
        return here
    matches = word_ids(connection, filter.text, here=here)
    return matches if here is None else np.intersect1d(here, matches, assume_unique=True)


def fetch_ids(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> NDArray[np.int64]:
    """Return the (n,) int64 ids of a query, fetched as one text, which is four times as fast as rows."""
    (text,) = connection.execute(f"SELECT group_concat(id) FROM ({sql})", parameters).fetchone()
    found: NDArray[np.int64] = np.fromstring(text or "", dtype=np.int64, sep=",")
    return found


def id_condition(allowed: NDArray[np.int64]) -> Condition:
    """Return the condition to be one of the ids."""
    return Condition("m.id IN (SELECT value FROM json_each(?))", (json.dumps(allowed.tolist()),))


def select_ids(
    connection: sqlite3.Connection, filter: Filter, *, order: Order = "id", limit: int | None = None
) -> NDArray[np.int64]:
    """Return the ids of matching memories in an order."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}; got {order!r}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit must not be negative, got {limit}")
    allowed = indexed_ids(connection, filter)
    if allowed is not None and order == "id" and not row_conditions(filter):
        return allowed[:limit]
    if allowed is not None and len(allowed) <= FEW:
        conditions, allowed = [id_condition(allowed), *row_conditions(filter)], None
    else:
        pairs = None if limit is None or order == "id" else pairs_of(connection, filter)
        if filter.kinds is not None and filter.labels is None and pairs is not None:
            rare = count_up_to(connection, [is_any("m.kind", filter.kinds)], COUNTED) < COUNTED
            pairs = None if rare else pairs
        if limit is not None and pairs is not None:
            return select_by_pair(connection, filter, pairs, order, limit, allowed)
        conditions = conditions_of(connection, filter)
    clause, parameters = where(conditions)
    sql = f"SELECT m.id AS id FROM memory AS m{clause} ORDER BY {ORDERS[order]} LIMIT ?"
    most = -1 if limit is None or allowed is not None else limit
    ids = fetch_ids(connection, sql, [*parameters, most])
    return ids if allowed is None else ids[among(ids, allowed)][:limit]


def select_among(connection: sqlite3.Connection, filter: Filter, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of the rising ids match."""
    allowed = indexed_ids(connection, filter) if len(ids) else None
    kept = ids if allowed is None else ids[among(ids, allowed)]
    conditions = row_conditions(filter)
    if len(kept) and conditions:
        clause, parameters = where([id_condition(kept), *conditions])
        sql = f"SELECT m.id AS id FROM memory AS m{clause} ORDER BY m.id"
        kept = fetch_ids(connection, sql, parameters)
    return among(ids, kept)


def times_of(connection: sqlite3.Connection, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (n,) int64 ``time_ns`` of existing memories in order of the ids."""
    sql = "SELECT m.time_ns FROM json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value ORDER BY j.key"
    rows = [time for part in chunks(ids.tolist()) for (time,) in connection.execute(sql, (json.dumps(part),))]
    return np.array(rows, dtype=np.int64)


def pairs_of(connection: sqlite3.Connection, filter: Filter) -> list[tuple[str, str | None]] | None:
    """Return the maps and labels to query individually, or ``None`` if there are too many."""
    maps = read_maps(connection) if filter.map_id is None else [filter.map_id]
    labels: Sequence[str | None] = [None] if filter.labels is None else sorted(set(filter.labels))
    return None if len(maps) * len(labels) > PAIRS else list(product(maps, labels))


def select_by_pair(
    connection: sqlite3.Connection,
    filter: Filter,
    pairs: Sequence[tuple[str, str | None]],
    order: Order,
    limit: int,
    allowed: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Return the newest or oldest of all pairs of map and label, each from the end of its index."""
    found: list[tuple[int, int]] = []
    rest = Filter(
        between_ns=filter.between_ns,
        kinds=filter.kinds,
        states=filter.states,
        min_confidence=filter.min_confidence,
        marked=filter.marked,
        moving=filter.moving,
    )
    for map_id, label in pairs:
        here = [Condition("m.map_id = ?", (map_id,))]
        if label is not None:
            here.append(Condition("m.label = ?", (label,)))
        clause, parameters = where(here + row_conditions(rest))
        index = "memory_time" if label is None else "memory_label"
        source = f"memory AS m INDEXED BY {index}{clause}"
        sql = f"SELECT m.time_ns, m.id FROM {source} ORDER BY {ORDERS[order]} LIMIT ?"
        if allowed is None:
            found += connection.execute(sql, [*parameters, limit]).fetchall()
        else:
            found += first_among(connection.execute(sql, [*parameters, -1]), allowed, limit)
    found.sort(reverse=order == "newest")
    return np.array([id for _, id in found[:limit]], dtype=np.int64)


def first_among(rows: sqlite3.Cursor, allowed: NDArray[np.int64], limit: int) -> list[tuple[int, int]]:
    """Return the first rows (time, id) with an allowed id."""
    found: list[tuple[int, int]] = []
    stretch = STRETCH
    while len(found) < limit and (part := rows.fetchmany(stretch)):
        kept = among(np.array([id for _, id in part], dtype=np.int64), allowed)
        found += [part[at] for at in np.flatnonzero(kept)]
        stretch = min(2 * stretch, 64 * STRETCH)
    rows.close()
    return found[:limit]


def count_matches(connection: sqlite3.Connection, filter: Filter) -> int:
    """Return the exact number of matches."""
    if filter == Filter(text=filter.text) and filter.text is not None:
        expression = expression_of(connection, filter.text)
        sql = "SELECT count(*) FROM words WHERE words MATCH ?"
        return 0 if expression is None else int(connection.execute(sql, (expression,)).fetchone()[0])
    allowed = indexed_ids(connection, filter)
    conditions = row_conditions(filter)
    if allowed is not None and not conditions:
        return len(allowed)
    if allowed is not None and len(allowed) <= FEW:
        conditions, allowed = [id_condition(allowed), *conditions], None
    else:
        conditions = conditions_of(connection, filter)
    clause, parameters = where(conditions)
    if allowed is None:
        return int(connection.execute(f"SELECT count(*) FROM memory AS m{clause}", parameters).fetchone()[0])
    ids = fetch_ids(connection, f"SELECT m.id AS id FROM memory AS m{clause}", parameters)
    return int(among(ids, allowed).sum())


def count_up_to(connection: sqlite3.Connection, conditions: Sequence[Condition], most: int) -> int:
    """Count the matches, up to ``most``."""
    clause, parameters = where(conditions)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM memory AS m{clause} LIMIT ?)"
    return int(connection.execute(sql, [*parameters, most]).fetchone()[0])


def read_captions(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the captions of the existing ones of these memories by id."""
    sql = "SELECT id, caption FROM body WHERE id IN (SELECT value FROM json_each(?))"
    return dict(connection.execute(sql, (json.dumps(list(ids)),)))


def search_words(
    connection: sqlite3.Connection, text: str, filter: Filter, *, limit: int, any_word: bool
) -> TextHits:
    """Return the matching memories whose label and caption fit the words best.

    Ties with the last of ``limit`` are returned too. If more than ``RANKED`` (and ``limit``) match, only so
    many of the newest are compared.
    """
    ids = word_ids(connection, text, any_word=any_word)
    alone = filter == Filter()
    if not alone:
        ids = np.intersect1d(ids, select_ids(connection, filter), assume_unique=True)
    if len(ids) > (most := max(limit, RANKED)):
        times = times_of(connection, ids)
        ids = ids[times >= np.partition(times, -most)[-most]]
        alone = False
    if not len(ids):
        return TextHits(ids, np.zeros(0))
    conditions = [
        Condition("words MATCH ?", (expression_of(connection, text, any_word=any_word),)),
        Condition("words.rowid BETWEEN ? AND ?", (int(ids[0]), int(ids[-1]))),
    ]
    if not alone:
        # Not looked up individually, which would count the store's words for each.
        one_of = "+words.rowid IN (SELECT value FROM json_each(?))"
        conditions.append(Condition(one_of, (json.dumps(ids.tolist()),)))
    clause, parameters = where(conditions)
    sql = (
        f"SELECT words.rowid AS id, -bm25(words) AS score FROM words{clause} ORDER BY score DESC, id LIMIT ?"
    )
    rows = connection.execute(sql, [*parameters, limit + 1]).fetchall()
    if len(rows) > limit:
        least = rows[limit - 1][1]
        if rows[limit][1] == least:
            rows = connection.execute(sql, [*parameters, -1]).fetchall()
        rows = [row for row in rows if row[1] >= least]
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    scores = np.array([row[1] for row in rows], dtype=np.float64)
    if len(scores) and scores[0] < COMMON_SCORE:
        scores /= COMMON_WEIGHT
    return TextHits(ids, scores)
