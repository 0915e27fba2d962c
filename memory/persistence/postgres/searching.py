"""Filters and words, answered by the server: every function works within the caller's read transaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.persistence.filters import Condition, column_conditions, judge
from memory.persistence.postgres import words
from memory.persistence.postgres.images import array
from memory.persistence.reading import ORDERS, RANKED, Order, TextHits, among, where
from memory.persistence.scanning import Columns
from memory.query import Filter
from memory.types import MOST_COUNT

#: What no memory matches.
NOTHING = Condition("false", ())
COLUMNS = (
    "m.id, m.time_ns, m.confidence, m.reward, m.importance, m.marked, m.count, m.access_count,"
    " coalesce(m.accessed_ns, m.time_ns), m.map_id, m.label, m.kind, m.state, m.x, m.y, m.z, m.yaw"
)


def one_of(column: str, values: Sequence[int]) -> Condition:
    """To be one of so many numbers."""
    return Condition(f"{column} = ANY(?::bigint[])", (array(values),))


def any_text(column: str, values: Sequence[Any]) -> Condition:
    """To be one of so many texts."""
    return Condition(f"{column} = ANY(?::text[])", (list(values),))


def conditions(connection: Any, filter: Filter) -> list[Condition]:
    """Everything of a filter but what is inside of a circle or polygon, which its bounds stand for."""
    return [*passed(connection, filter), *by_place(filter)]


def passed(connection: Any, filter: Filter) -> list[Condition]:
    """The same as what each memory passes by itself."""
    found = column_conditions(filter, any_text)
    if filter.bounds is not None:
        x0, y0, x1, y1 = filter.bounds
        # Edges included.
        found += [Condition("m.x BETWEEN ? AND ?", (x0, x1)), Condition("m.y BETWEEN ? AND ?", (y0, y1))]
    if filter.text is not None:
        said = words.expression(connection, filter.text)
        found.append(NOTHING if said is None else Condition("m.words @@ ?::tsquery", (said,)))
    return found


def by_place(filter: Filter) -> list[Condition]:
    """What is looked up in the index of places, and goes without saying where a filter is passed.

    The server takes it for rarer than it is.
    """
    if filter.bounds is None or not all(map(math.isfinite, filter.bounds)):
        return []
    return [Condition("point(m.x, m.y) <@ box(point(?, ?), point(?, ?))", filter.bounds)]


def by_contents(table: str) -> str:
    """SQL of the order of equal memories, as :mod:`memory.search.ranking` has it."""
    texts = [f'{name} COLLATE "C"' for name in ("map_id", "kind", "label", "caption", "evidence")]
    texts += [f'{name} COLLATE "C"' for name in ("provenance", "payload")]
    numbers = ("time_ns", "x", "y", "z")
    names = (*numbers, *texts, "yaw", "confidence", "reward", 'state COLLATE "C"', "count", "id")
    return ", ".join(f"{table}.{name}" for name in names)


def is_judged(filter: Filter) -> bool:
    """Whether the server finds more than matches."""
    return filter.circle is not None or filter.polygon is not None


def select_ids(
    connection: Any, filter: Filter, *, order: Order = "id", limit: int | None = None
) -> NDArray[np.int64]:
    """Ids of the memories that match, in an order."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}; got {order!r}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit must not be negative, got {limit}")
    return _select(connection, conditions(connection, filter), filter, order, limit)


def _select(
    connection: Any, parts: Sequence[Condition], filter: Filter, order: Order, limit: int | None
) -> NDArray[np.int64]:
    clause, parameters = where(parts)
    judged = is_judged(filter)
    columns = "m.id, m.x, m.y" if judged else "m.id"
    sql = f"SELECT {columns} FROM memory AS m{clause} ORDER BY {ORDERS[order]}"
    if limit is not None and not judged:
        sql, parameters = f"{sql} LIMIT ?", [*parameters, limit]
    rows = connection.execute(sql, parameters).fetchall()
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    if judged:
        points = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 2)
        ids = ids[judge(points, filter, np.ones(len(ids), np.bool_))][:limit]
    return ids


def select_among(connection: Any, filter: Filter, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the rising ids are of memories that match."""
    if not len(ids):
        return np.zeros(0, np.bool_)
    parts = [one_of("m.id", ids.tolist()), *conditions(connection, filter)]
    return among(ids, _select(connection, parts, filter, "id", None))


def times_of(connection: Any, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) int64 ``time_ns`` of memories that are there, in the order of the ids."""
    sql = (
        "SELECT m.time_ns FROM unnest(?::bigint[]) WITH ORDINALITY AS n (id, at)"
        " JOIN memory AS m ON m.id = n.id ORDER BY n.at"
    )
    rows = connection.execute(sql, (array(ids.tolist()),)).fetchall()
    return np.array([time for (time,) in rows], dtype=np.int64)


def count_matches(connection: Any, filter: Filter) -> int:
    """How many match, exactly."""
    if is_judged(filter):
        return len(select_ids(connection, filter))
    clause, parameters = where(conditions(connection, filter))
    return int(connection.execute(f"SELECT count(*) FROM memory AS m{clause}", parameters).fetchone()[0])


def word_ids(connection: Any, text: str) -> NDArray[np.int64]:
    """Rising ids of the memories that have all words, in any form."""
    return select_ids(connection, Filter(text=text))


def search_words(connection: Any, text: str, filter: Filter, *, limit: int, any_word: bool) -> TextHits:
    """The memories whose label and caption fit the words best, among those that match the filter.

    Where more than ``RANKED`` (and ``limit``) match, only so many of the newest are compared. The score is
    the server's ``ts_rank``, which favours what has the words often in few; equal ones are ordered as by
    :mod:`memory.search.ranking`.
    """
    said = words.expression(connection, text, any_word=any_word)
    if said is None:
        return TextHits(np.zeros(0, np.int64), np.zeros(0))
    parts = [Condition("m.words @@ ?::tsquery", (said,)), *conditions(connection, filter)]
    if is_judged(filter):
        parts = [one_of("m.id", _select(connection, parts, filter, "id", None).tolist())]
    clause, parameters = where(parts)
    sql = (
        "SELECT s.id, ts_rank(s.words, ?::tsquery, 1)::double precision AS score FROM"
        f" (SELECT m.* FROM memory AS m{clause} ORDER BY m.time_ns DESC LIMIT ?) AS s"
        f" ORDER BY score DESC, {by_contents('s')} LIMIT ?"
    )
    rows = connection.execute(sql, [said, *parameters, max(limit, RANKED), limit]).fetchall()
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    return TextHits(ids, np.array([row[1] for row in rows], dtype=np.float64))


def scan_columns(
    connection: Any, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
) -> Columns:
    """Columns of memories in the order of their ids: a stretch, or those of ``ids`` that are there."""
    part = Condition("m.id > ?", (after_id,)) if ids is None else one_of("m.id", sorted(set(ids)))
    sql = f"SELECT {COLUMNS} FROM memory AS m WHERE {part.sql} ORDER BY m.id"
    parameters = part.parameters
    if limit >= 0:
        sql, parameters = f"{sql} LIMIT ?", (*parameters, limit)
    rows = connection.execute(sql, parameters).fetchall()
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * 17

    def integers(at: int) -> NDArray[np.int64]:
        return np.array(columns[at], dtype=np.int64)

    def floats(at: int) -> NDArray[np.float64]:
        return np.array(columns[at], dtype=np.float64)

    return Columns(
        ids=integers(0),
        time_ns=integers(1),
        positions=np.stack([floats(13), floats(14), floats(15)], axis=1),
        yaw=floats(16),
        confidence=floats(2),
        reward=floats(3),
        importance=np.clip(floats(4), 0.0, 1.0),
        marked=np.array(columns[5], dtype=bool),
        counts=np.minimum(integers(6), MOST_COUNT),
        access_counts=integers(7),
        accessed_ns=integers(8),
        map_ids=list(columns[9]),
        labels=list(columns[10]),
        kinds=list(columns[11]),
        states=list(columns[12]),
    )
