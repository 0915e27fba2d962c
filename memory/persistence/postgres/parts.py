"""A store on a server in parts: memories that were added in different months lie in different tables.

Ids rise with the time of adding, so a part is a stretch of ids: what is looked up by id is looked up in one
table, and a part can be dropped whole (:mod:`memory.archive`). Every function works within the caller's
transaction.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any, NamedTuple

from memory.errors import StoreLockedError
from memory.persistence import journal
from memory.persistence.engine import engine_of
from memory.persistence.journal import Counters
from memory.persistence.migrations import Migration
from memory.persistence.postgres import words

#: Tables that are parted.
PARTED = ("memory", "embedding", "visited")
#: Seconds that the beginning of a part waits for readers; the next call begins it otherwise.
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


def _parted(table: str) -> list[str]:
    """Statements that make a table the first part of one of its name."""
    indexes = {name: said for name, said in _INDEXES.items() if name.startswith(table)}
    return [
        f"ALTER TABLE {table} RENAME TO {table}_1",
        f"ALTER INDEX {table}_pkey RENAME TO {table}_1_pkey",
        *(f"ALTER INDEX {name} RENAME TO {name}_1" for name in indexes),
        f"CREATE TABLE {table} (LIKE {table}_1 INCLUDING DEFAULTS, PRIMARY KEY ({_KEYS[table]}))"
        " PARTITION BY RANGE (id)",
        *(f"CREATE INDEX {name} {said.format(table)}" for name, said in indexes.items()),
        f"ALTER TABLE {table} ATTACH PARTITION {table}_1 FOR VALUES FROM (MINVALUE) TO (MAXVALUE)",
    ]


#: The tables of before become the first part, as they are.
IN_PARTS = Migration(
    "parts by month",
    (
        *(statement for table in PARTED for statement in _parted(table)),
        "CREATE TABLE part (first_id bigint PRIMARY KEY, begun_ns bigint NOT NULL)",
        # An index over vectors has the number of its part in its name.
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
    """A stretch of ids.

    Attributes:
        first_id: of it.
        end_id: first that it has not; ``None`` for the part that grows.
        begun_ns: when it began, by the clock of who began it.
        ended_ns: when the next began, or ``None``.
    """

    first_id: int
    end_id: int | None
    begun_ns: int
    ended_ns: int | None

    @property
    def month(self) -> str:
        """That it began in, as ``2026-11`` (UTC)."""
        return month_of(self.begun_ns)

    def contains(self, column: str) -> str:
        """SQL: whether an id is of it. The parts before were dropped, or have smaller ids."""
        low = f"{column} >= {self.first_id}"
        return low if self.end_id is None else f"{low} AND {column} < {self.end_id}"


def month_of(time_ns: int) -> str:
    """The month of a time, as ``2026-11`` (UTC)."""
    return datetime.fromtimestamp(time_ns // 10**9, timezone.utc).strftime("%Y-%m")


def read_parts(connection: Any) -> list[Part]:
    """All of them, the first first."""
    rows = connection.execute("SELECT first_id, begun_ns FROM part ORDER BY first_id").fetchall()
    following = [*rows[1:], (None, None)]
    return [
        Part(first, end, begun, ended) for (first, begun), (end, ended) in zip(rows, following, strict=True)
    ]


def begin_part(connection: Any, counters: Counters, now_ns: int | None = None) -> bool:
    """Begin a part for what is added from now on, where the last began in an earlier month and is not empty.

    Args:
        connection: that holds the store's lock, of the tables' owner.
        counters: as they are under the lock.
        now_ns: the time; by default the computer's.
    """
    now = time.time_ns() if now_ns is None else now_ns
    last, start = read_parts(connection)[-1], counters.next_id
    if month_of(now) <= last.month or start == last.first_id:
        return False
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


def spans(connection: Any) -> list[tuple[Part, int, int]]:
    """The parts that have memories, with the first and the last of their times."""
    found = []
    for part in read_parts(connection):
        sql = f"SELECT min(m.time_ns), max(m.time_ns) FROM memory AS m WHERE {part.contains('m.id')}"
        first, last = connection.execute(sql).fetchone()
        if first is not None:
            found.append((part, first, last))
    return found


def drop_part(connection: Any, counters: Counters, part: Part, generation: int, file: str) -> int:
    """Drop a part that ended, as an operation that cannot be undone; returns how many memories it had.

    Args:
        connection: that holds the store's lock, of the tables' owner.
        counters: as they are under the lock.
        part: as it was read.
        generation: at which its memories were written to the file.
        file: for the log.

    Raises:
        StoreLockedError: memories of it were changed since, or it is not there any more.
    """
    where = part.contains("id")
    changed = f"SELECT 1 FROM log_row WHERE generation > ? AND {where} LIMIT 1"
    moved = "SELECT 1 FROM log_pose WHERE generation > ? AND first_id < ? AND last_id >= ? LIMIT 1"
    if (
        part not in read_parts(connection)
        or connection.execute(changed, (generation,)).fetchone()
        or connection.execute(moved, (generation, part.end_id, part.first_id)).fetchone()
    ):
        raise StoreLockedError(f"memories of {part.month} were changed while they were archived: try again")
    connection.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'")
    ids = [id for (id,) in connection.execute(f"SELECT id FROM memory WHERE {where} ORDER BY id")]
    # Also what the log has of memories that were forgotten before.
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
    words.leave_out(connection, f"memory_{part.first_id}")
    for table in PARTED:
        connection.execute(f"DROP TABLE {table}_{part.first_id}")
    connection.execute("DELETE FROM part WHERE first_id = ?", (part.first_id,))
    return len(ids)
