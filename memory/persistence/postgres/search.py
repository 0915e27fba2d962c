"""Filters and word search on the server; every function runs within the caller's read transaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.persistence.filters import column_conditions, judge
from memory.persistence.ids import among
from memory.persistence.postgres import words
from memory.persistence.postgres.images import array
from memory.persistence.rows import ORDERS, RANKED, Columns, Order, TextHits
from memory.persistence.sql import Condition, where
from memory.query import Filter
from memory.types import SLOWEST_M_S

#: Condition that an object moves; NULL if its velocity is unknown. A distance does not underflow.
MOVING = (
    "(point((m.velocity::json->>0)::double precision, (m.velocity::json->>1)::double precision)"
    f" <-> point(0, 0) >= {SLOWEST_M_S!r})"
)
#: Condition that no memory matches.
NOTHING = Condition("false", ())
_PLACED = "SELECT m.id, m.time_ns, m.x, m.y FROM memory AS m"
COLUMNS = (
    "m.id, m.time_ns, m.confidence, m.reward, m.importance, m.marked, m.count, m.access_count,"
    " coalesce(m.accessed_ns, m.time_ns), m.map_id, m.label, m.kind, m.state, m.velocity,"
    " m.x, m.y, m.z, m.yaw"
)


def one_of(column: str, values: Sequence[int]) -> Condition:
    """Return the condition to be one of these numbers."""
    return Condition(f"{column} = ANY(?::bigint[])", (array(values),))


def any_text(column: str, values: Sequence[Any]) -> Condition:
    """Return the condition to be one of these texts."""
    return Condition(f"{column} = ANY(?::text[])", (list(values),))


def conditions(connection: Any, filter: Filter) -> list[Condition]:
    """Return the conditions of a filter; a circle or polygon is replaced by its bounds."""
    return [*row_conditions(connection, filter), *by_place(filter)]


def row_conditions(connection: Any, filter: Filter) -> list[Condition]:
    """Return the conditions that each memory passes by itself."""
    found = column_conditions(filter, any_text, MOVING)
    if filter.bounds is not None:
        x0, y0, x1, y1 = filter.bounds
        # Edges included.
        found += [Condition("m.x BETWEEN ? AND ?", (x0, x1)), Condition("m.y BETWEEN ? AND ?", (y0, y1))]
    if filter.text is not None:
        query = words.expression(connection, filter.text)
        found.append(NOTHING if query is None else Condition("m.words @@ ?::tsquery", (query,)))
    return found


def by_place(filter: Filter) -> list[Condition]:
    """Return the condition that uses the place index, in addition to those of :func:`row_conditions`.

    It is separate, because the server overestimates how selective it is.
    """
    if filter.bounds is None or not all(map(math.isfinite, filter.bounds)):
        return []
    return [Condition("point(m.x, m.y) <@ box(point(?, ?), point(?, ?))", filter.bounds)]


def by_contents(table: str) -> str:
    """Return the SQL order of equal memories, as in :mod:`memory.search.ranking`."""
    texts = [f'{name} COLLATE "C"' for name in ("map_id", "kind", "label", "caption", "evidence")]
    texts += [f'{name} COLLATE "C"' for name in ("provenance", "payload")]
    numbers = ("time_ns", "x", "y", "z")
    names = (*numbers, *texts, "yaw", "confidence", "reward", 'state COLLATE "C"', "count", "id")
    return ", ".join(f"{table}.{name}" for name in names)


def is_judged(filter: Filter) -> bool:
    """Return True if the server returns more than the matches."""
    return any(part is not None for part in (filter.circle, filter.polygon, filter.region))


def select_ids(
    connection: Any, filter: Filter, *, order: Order = "id", limit: int | None = None
) -> NDArray[np.int64]:
    """Return the ids of matching memories in an order."""
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
    found = _judged(rows, filter)[:limit] if judged else rows
    return np.array([row[0] for row in found], dtype=np.int64)


def select_newest(connection: Any, filter: Filter, k: int) -> NDArray[np.int64]:
    """Return the newest ``k`` matches, equal times in the order of :mod:`memory.search.ranking`."""
    clause, parameters = where(conditions(connection, filter))
    sql = f"{_PLACED}{clause} ORDER BY m.time_ns DESC"
    judged = is_judged(filter)
    # The bounds of a circle or polygon contain more than its matches.
    for most in (4 * k + 1, 64 * k + 1, None) if judged else (k + 1,):
        rows = connection.execute(f"{sql} LIMIT ?", [*parameters, most]).fetchall()
        found = _judged(rows, filter) if judged else rows
        if len(found) > k or most is None or len(rows) < most:
            break
    found = found[: k + 1]
    if len({row[1] for row in found}) < len(found):
        # Some are equally new, so compare all that are at least as new as the last one.
        since = Condition("m.time_ns >= ?", (found[-1][1],))
        clause, parameters = where([*conditions(connection, filter), since])
        sql = f"{_PLACED}{clause} ORDER BY m.time_ns DESC, {by_contents('m')} LIMIT ?"
        rows = connection.execute(sql, [*parameters, None if judged else k]).fetchall()
        found = _judged(rows, filter) if judged else rows
    return np.array([row[0] for row in found[:k]], dtype=np.int64)


def _judged(rows: Sequence[Any], filter: Filter) -> list[Any]:
    """Return the rows whose last two columns, x and y, lie in the filter's circle, polygon and region."""
    points = np.array([row[-2:] for row in rows], dtype=np.float64).reshape(-1, 2)
    kept = judge(points, filter, np.ones(len(rows), np.bool_))
    return [rows[at] for at in np.flatnonzero(kept).tolist()]


def select_among(connection: Any, filter: Filter, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of the rising ids match."""
    if not len(ids):
        return np.zeros(0, np.bool_)
    parts = [one_of("m.id", ids.tolist()), *conditions(connection, filter)]
    return among(ids, _select(connection, parts, filter, "id", None))


def times_of(connection: Any, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (n,) int64 ``time_ns`` of existing memories in order of the ids."""
    sql = (
        "SELECT m.time_ns FROM unnest(?::bigint[]) WITH ORDINALITY AS n (id, at)"
        " JOIN memory AS m ON m.id = n.id ORDER BY n.at"
    )
    rows = connection.execute(sql, (array(ids.tolist()),)).fetchall()
    return np.array([time for (time,) in rows], dtype=np.int64)


def read_captions(connection: Any, ids: Sequence[int]) -> dict[int, str]:
    """Return the captions of the existing ones of these memories by id."""
    sql = "SELECT id, caption FROM memory WHERE id = ANY(?::bigint[])"
    return dict(connection.execute(sql, (array(ids),)).fetchall())


def count_matches(connection: Any, filter: Filter) -> int:
    """Return the exact number of matches."""
    if is_judged(filter):
        return len(select_ids(connection, filter))
    clause, parameters = where(conditions(connection, filter))
    return int(connection.execute(f"SELECT count(*) FROM memory AS m{clause}", parameters).fetchone()[0])


def word_ids(connection: Any, text: str) -> NDArray[np.int64]:
    """Return the rising ids of the memories with all words, in any form."""
    return select_ids(connection, Filter(text=text))


def search_words(connection: Any, text: str, filter: Filter, *, limit: int, any_word: bool) -> TextHits:
    """Return the matching memories whose label and caption fit the words best.

    If more than ``RANKED`` (and ``limit``) match, only so many of the newest are compared. The score is the
    server's ``ts_rank``, which favours short texts that repeat the words; ties are ordered as in
    :mod:`memory.search.ranking`.
    """
    query = words.expression(connection, text, any_word=any_word)
    if query is None:
        return TextHits(np.zeros(0, np.int64), np.zeros(0))
    parts = [Condition("m.words @@ ?::tsquery", (query,)), *conditions(connection, filter)]
    if is_judged(filter):
        parts = [one_of("m.id", _select(connection, parts, filter, "id", None).tolist())]
    clause, parameters = where(parts)
    sql = (
        "SELECT s.id, ts_rank(s.words, ?::tsquery, 1)::double precision AS score FROM"
        f" (SELECT m.* FROM memory AS m{clause} ORDER BY m.time_ns DESC LIMIT ?) AS s"
        f" ORDER BY score DESC, {by_contents('s')} LIMIT ?"
    )
    rows = connection.execute(sql, [query, *parameters, max(limit, RANKED), limit]).fetchall()
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    return TextHits(ids, np.array([row[1] for row in rows], dtype=np.float64))


def scan_columns(
    connection: Any, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
) -> Columns:
    """Return columns by rising id: a range, or the existing ones of ``ids``."""
    part = Condition("m.id > ?", (after_id,)) if ids is None else one_of("m.id", sorted(set(ids)))
    sql = f"SELECT {COLUMNS} FROM memory AS m WHERE {part.sql} ORDER BY m.id"
    parameters = part.parameters
    if limit >= 0:
        sql, parameters = f"{sql} LIMIT ?", (*parameters, limit)
    rows = connection.execute(sql, parameters).fetchall()
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * 18
    places = [np.array(column, dtype=np.float64) for column in columns[14:]]
    return Columns.of(columns, np.stack(places, axis=1))
