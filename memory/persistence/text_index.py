"""The text index of a store in a file: FTS5 over the terms of labels and captions.

FTS5 cuts ASCII text as :func:`memory.terms.terms` does. Of other text the table ``folded`` holds
the terms, parted by spaces, and the view ``text_source`` gives these in place of what was written. So the
index can be rebuilt with SQL alone, and what was indexed is known when it has to be removed. Every function
works within the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from memory.terms import indexed

INSERT = "INSERT INTO words (rowid, label, caption) VALUES (?, ?, ?)"
_INSERT_FOLDED = "INSERT INTO folded (id, label, caption) VALUES (?, ?, ?)"
_DELETE = (
    "INSERT INTO words (words, rowid, label, caption)"
    " SELECT 'delete', id, label, caption FROM text_source WHERE id = ?"
)
#: What ``folded`` should hold, by the function that :func:`teach` gives a connection.
FOLD = (
    "SELECT id, label, caption FROM (SELECT m.id AS id, indexed(m.label) AS label,"
    " indexed(b.caption) AS caption, m.label AS was_label, b.caption AS was_caption"
    " FROM memory AS m JOIN body AS b ON b.id = m.id)"
    " WHERE label <> was_label OR caption <> was_caption"
)


def add(connection: sqlite3.Connection, rows: Iterable[tuple[int, str, str]]) -> None:
    """Index new memories: id, label and caption of each."""
    plain, folded = [], []
    for id, label, caption in rows:
        row = id, indexed(label), indexed(caption)
        plain.append(row)
        if row != (id, label, caption):
            folded.append(row)
    connection.executemany(INSERT, plain)
    connection.executemany(_INSERT_FOLDED, folded)


def remove(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Take memories out of the index; their rows must still be there, as they were indexed."""
    keys = [(id,) for id in ids]
    connection.executemany(_DELETE, keys)
    connection.executemany("DELETE FROM folded WHERE id = ?", keys)


def rebuild(connection: sqlite3.Connection) -> None:
    """Make the index anew of labels and captions."""
    teach(connection)
    connection.execute("DELETE FROM folded")
    connection.execute(f"INSERT INTO folded (id, label, caption) {FOLD}")
    connection.execute("INSERT INTO words (words) VALUES ('rebuild')")


def differing(connection: sqlite3.Connection, most: int) -> list[int]:
    """Ids whose row of ``folded`` is not that of their texts, the first of them."""
    teach(connection)
    held = "SELECT id, label, caption FROM folded"
    sql = f"SELECT id FROM ({FOLD} EXCEPT {held}) UNION SELECT id FROM ({held} EXCEPT {FOLD}) LIMIT ?"
    return [id for (id,) in connection.execute(sql, (most,))]


def teach(connection: sqlite3.Connection) -> None:
    """Give a connection the SQL function ``indexed``."""
    connection.create_function("indexed", 1, indexed, deterministic=True)
