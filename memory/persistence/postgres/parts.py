"""Parts of a store on a server: memories added in different months are in different tables.

Ids rise with the time of adding, so a part is a range of ids. A lookup by id reads one table, and a part can
be dropped as a whole (:mod:`memory.archive`). Every function runs within the caller's transaction.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any, NamedTuple

from memory.errors import StoreLockedError
from memory.persistence.engine import engine_of
from memory.persistence.log import journal
from memory.persistence.log.journal import Counters
from memory.persistence.postgres import words
from memory.persistence.sql import Migration

#: Partitioned tables.
PARTED = ("memory", "embedding", "visited")
#: Seconds to wait for readers when a part begins; the next call tries again.
WAIT_S = 10

_INDEXES = {
    "memory_time": "ON {} (time_ns, id)",
    "memory_map_time": "ON {} (map_id, time_ns, id)",
    "memory_label": "ON {} (label, time_ns, id)",
    "memory_place": "ON {} USING gist (point(x, y))",
    "memory_words": "ON {} USING gin (words)",
    "visited_span": "ON {} (first_ns, last_ns)",
}
_KEYS = {"memory": "id", "embedding": "id, slot", "visited": "id"}


def _partition_statements(table: str) -> list[str]:
    """Return the statements that make a table the first partition of a new one."""
    indexes = {name: columns for name, columns in _INDEXES.items() if name.startswith(table)}
    return [
        f"ALTER TABLE {table} RENAME TO {table}_1",
        f"ALTER INDEX {table}_pkey RENAME TO {table}_1_pkey",
        *(f"ALTER INDEX {name} RENAME TO {name}_1" for name in indexes),
        f"CREATE TABLE {table} (LIKE {table}_1 INCLUDING DEFAULTS, PRIMARY KEY ({_KEYS[table]}))"
        " PARTITION BY RANGE (id)",
        *(f"CREATE INDEX {name} {columns.format(table)}" for name, columns in indexes.items()),
        f"ALTER TABLE {table} ATTACH PARTITION {table}_1 FOR VALUES FROM (MINVALUE) TO (MAXVALUE)",
    ]


#: The existing tables become the first part, unchanged.
IN_PARTS = Migration(
    "parts by month",
    (
        *(statement for table in PARTED for statement in _partition_statements(table)),
        "CREATE TABLE part (first_id bigint PRIMARY KEY, begun_ns bigint NOT NULL)",
        # The name of a vector index ends with the number of its part.
        """DO $$ DECLARE each text; BEGIN
            FOR each IN SELECT indexname FROM pg_indexes
                WHERE schemaname = current_schema() AND indexname LIKE 'embedding\\_hnsw\\_%' LOOP
                EXECUTE format('ALTER INDEX %I RENAME TO %I', each, each || '_1');
            END LOOP;
        END $$""",
        "INSERT INTO part SELECT 1, coalesce(min(time_ns), (extract(epoch FROM now()) * 1e9)::bigint)"
        " FROM log",
    ),
)


class Part(NamedTuple):
    """A range of ids.

    Attributes:
        first_id: its first id.
        end_id: first id after it; ``None`` for the part that grows.
        begun_ns: time when it began, by the clock of the process that began it.
        ended_ns: time when the next part began, or ``None``.
    """

    first_id: int
    end_id: int | None
    begun_ns: int
    ended_ns: int | None

    @property
    def month(self) -> str:
        """Month in which it began, such as ``2026-11`` (UTC)."""
        return month_of(self.begun_ns)

    def contains(self, column: str) -> str:
        """Return SQL that is true for its ids; earlier parts were dropped or have smaller ids."""
        low = f"{column} >= {self.first_id}"
        return low if self.end_id is None else f"{low} AND {column} < {self.end_id}"


def month_of(time_ns: int) -> str:
    """Return the month of a time, such as ``2026-11`` (UTC)."""
    return datetime.fromtimestamp(time_ns // 10**9, timezone.utc).strftime("%Y-%m")


def read_parts(connection: Any) -> list[Part]:
    """Return all parts, oldest first."""
    rows = connection.execute("SELECT first_id, begun_ns FROM part ORDER BY first_id").fetchall()
    following = [*rows[1:], (None, None)]
    return [
        Part(first, end, begun, ended) for (first, begun), (end, ended) in zip(rows, following, strict=True)
    ]


def begin_part(
    connection: Any, counters: Counters, now_ns: int | None = None, *, unindexed: bool = False
) -> bool:
    """Begin a new part if the last one began in an earlier month and is not empty; return True if so.

    Args:
        now_ns: the time; by default the computer's.
        unindexed: also begin one within the month if the last one has a vector index.
    """
    now = time.time_ns() if now_ns is None else now_ns
    last, start = read_parts(connection)[-1], counters.next_id
    due = month_of(now) > last.month or (unindexed and _has_vector_index(connection, last))
    if not due or start == last.first_id:
        return False
    now = max(now, last.begun_ns)
    connection.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
    low = "MINVALUE" if last.first_id == 1 else last.first_id
    for table in PARTED:
        old = f"{table}_{last.first_id}"
        connection.execute(f"ALTER TABLE {table} DETACH PARTITION {old}")
        connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {old} FOR VALUES FROM ({low}) TO ({start})")
        connection.execute(
            f"CREATE TABLE {table}_{start} PARTITION OF {table} FOR VALUES FROM ({start}) TO (MAXVALUE)"
        )
    connection.execute("INSERT INTO part (first_id, begun_ns) VALUES (?, ?)", (start, now))
    return True


def _has_vector_index(connection: Any, part: Part) -> bool:
    sql = (
        "SELECT 1 FROM pg_indexes WHERE schemaname = current_schema() AND tablename = ?"
        " AND starts_with(indexname, 'embedding_hnsw_')"
    )
    return connection.execute(sql, (f"embedding_{part.first_id}",)).fetchone() is not None


def spans(connection: Any) -> list[tuple[Part, int, int]]:
    """Return the parts with memories, and the first and last of their times."""
    found = []
    for part in read_parts(connection):
        sql = f"SELECT min(m.time_ns), max(m.time_ns) FROM memory AS m WHERE {part.contains('m.id')}"
        first, last = connection.execute(sql).fetchone()
        if first is not None:
            found.append((part, first, last))
    return found


def drop_part(connection: Any, counters: Counters, part: Part, generation: int, file: str) -> int:
    """Drop a finished part, as an operation that cannot be undone; return its number of memories.

    Args:
        generation: generation at which its memories were archived.
        file: name of the file, for the log.

    Raises:
        StoreLockedError: its memories changed since, or it is gone.
    """
    where = part.contains("id")
    changed = f"SELECT 1 FROM log_row WHERE generation > ? AND {where} LIMIT 1"
    moved = "SELECT 1 FROM log_pose WHERE generation > ? AND first_id < ? AND last_id >= ? LIMIT 1"
    if (
        part not in read_parts(connection)
        or connection.execute(changed, (generation,)).fetchone()
        or connection.execute(moved, (generation, part.end_id, part.first_id)).fetchone()
    ):
        raise StoreLockedError(f"memories of {part.month} changed while they were archived. Try again")
    connection.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
    ids = [id for (id,) in connection.execute(f"SELECT id FROM memory WHERE {where} ORDER BY id")]
    # Also erase what the log has of memories that were forgotten earlier.
    logged = [id for (id,) in connection.execute(f"SELECT DISTINCT id FROM log_row WHERE {where}")]
    detail = {"month": part.month, "file": file, "memories": len(ids)}
    done = journal.write_entry(connection, counters, "archive", detail)
    (last,) = connection.execute(engine_of(connection).last_log_row).fetchone()
    connection.execute(
        "INSERT INTO log_row (row, generation, id, what, map_id, memory_of)"
        " SELECT ? + row_number() OVER (ORDER BY id), ?, id, 'removed', map_id, writer"
        f" FROM memory WHERE {where}",
        (last, done),
    )
    journal.redact(connection, sorted({*ids, *logged}))
    words.subtract(connection, f"memory_{part.first_id}")
    for table in PARTED:
        connection.execute(f"DROP TABLE {table}_{part.first_id}")
    connection.execute("DELETE FROM part WHERE first_id = ?", (part.first_id,))
    return len(ids)
