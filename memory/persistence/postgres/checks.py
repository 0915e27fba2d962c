"""Checks of the tables of a store on a server, and repair of what can be derived."""

from __future__ import annotations

from dataclasses import replace

from memory.persistence.postgres import words
from memory.persistence.reports import CheckReport
from memory.persistence.sql import Connection

#: Queries that must return 0, and the message with their number.
_CHECKS = (
    ("SELECT count(*) FROM embedding e WHERE NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = e.id)",
     "embedding: {} vectors of memories that are not there"),
    ("SELECT count(*) FROM visited v WHERE NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = v.id)",
     "visited: visits of {} memories that are not there"),
    ("SELECT count(*) FROM memory m"
     " WHERE (visits <> 0) <> EXISTS (SELECT 1 FROM visited v WHERE v.id = m.id)",
     "visited: {} memories lack their visits, or have some that they should not have"),
    ("SELECT coalesce(max(generation), 0) - count(*) FROM log", "log: {} operations are missing"),
    ("SELECT count(*) FROM memory WHERE id >= (SELECT coalesce(max(next_id), 1) FROM log)",
     "memory: {} memories that no operation added"),
    ("SELECT count(*) FROM embedding e JOIN slot s USING (slot) WHERE vector_dims(e.half) <> s.dim",
     "embedding: {} vectors of another length than their encoder's"),
)  # fmt: skip


def find_problems(connection: Connection) -> list[str]:
    """Return the inconsistencies."""
    found = []
    for sql, message in _CHECKS:
        (wrong,) = connection.execute(sql).fetchone()
        if wrong:
            found.append(message.format(wrong))
    if words_differ(connection):
        found.append("words: counts of words differ from the memories'")
    return found


def words_differ(connection: Connection) -> bool:
    """Return True if the word counts do not match the memories."""
    sql = (
        "SELECT 1 FROM (SELECT term, doc FROM vocabulary) AS v FULL JOIN"
        " (SELECT word COLLATE \"C\" AS term, ndoc AS doc FROM ts_stat('SELECT words FROM memory')) AS s"
        " USING (term) WHERE v.doc IS DISTINCT FROM s.doc LIMIT 1"
    )
    return connection.execute(sql).fetchone() is not None


def look(connection: Connection) -> CheckReport:
    """Return the inconsistencies and the number of memories."""
    (memories,) = connection.execute("SELECT count(*) FROM memory").fetchone()
    return CheckReport(memories, tuple(find_problems(connection)))


def repair(connection: Connection) -> CheckReport:
    """Repair what can be derived, and check again."""
    done = []
    rows = connection.execute("SELECT id, label, caption FROM memory ORDER BY id").fetchall()
    if words_differ(connection):
        connection.execute("DELETE FROM vocabulary")
        texts = [(label, caption) for _, label, caption in rows]
        connection.executemany(
            "UPDATE memory SET words = ?::tsvector WHERE id = ?",
            [(words.vector_of(label, caption), id) for id, label, caption in rows],
        )
        words.count(connection, words.counts_of(texts), 1)
        done.append("the words of all memories were indexed anew")
    for table in ("embedding", "visited"):
        sql = f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM memory WHERE memory.id = {table}.id)"
        if connection.execute(f"{sql} RETURNING id").fetchall():
            done.append(f"rows of {table} without a memory were removed")
    return replace(look(connection), repaired=tuple(done))
