"""Text index of a store in a file: FTS5 over the terms of labels and captions.

FTS5 splits ASCII text like :func:`memory.terms.terms`. For other text the table ``folded`` holds the terms,
separated by spaces, and the view ``text_source`` shows these instead of the original. So SQL alone can
rebuild the index, and the indexed text is known when it has to be removed. Every function runs within the
caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from memory.persistence.vocabulary import plain, siblings
from memory.terms import indexed, terms

INSERT = "INSERT INTO words (rowid, label, caption) VALUES (?, ?, ?)"
_INSERT_FOLDED = "INSERT INTO folded (id, label, caption) VALUES (?, ?, ?)"
_DELETE = (
    "INSERT INTO words (words, rowid, label, caption)"
    " SELECT 'delete', id, label, caption FROM text_source WHERE id = ?"
)
#: Expected content of ``folded``, with the function of :func:`register_function`.
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
    """Remove memories from the index; their rows must still be as indexed."""
    keys = [(id,) for id in ids]
    connection.executemany(_DELETE, keys)
    connection.executemany("DELETE FROM folded WHERE id = ?", keys)


def rebuild(connection: sqlite3.Connection) -> None:
    """Rebuild the index from labels and captions."""
    register_function(connection)
    connection.execute("DELETE FROM folded")
    connection.execute(f"INSERT INTO folded (id, label, caption) {FOLD}")
    connection.execute("INSERT INTO words (words) VALUES ('rebuild')")


def find_mismatches(connection: sqlite3.Connection, most: int) -> list[int]:
    """Return the first ids whose row of ``folded`` does not match their texts."""
    register_function(connection)
    held = "SELECT id, label, caption FROM folded"
    sql = f"SELECT id FROM ({FOLD} EXCEPT {held}) UNION SELECT id FROM ({held} EXCEPT {FOLD}) LIMIT ?"
    return [id for (id,) in connection.execute(sql, (most,))]


def register_function(connection: sqlite3.Connection) -> None:
    """Register the SQL function ``indexed``."""
    connection.create_function("indexed", 1, indexed, deterministic=True)


def expression(connection: sqlite3.Connection, text: str, *, any_word: bool = False) -> str | None:
    """Return an FTS5 expression for the words of a text, each in all its forms in the store.

    Returns:
        The expression, or ``None`` if there is nothing to look up.
    """
    found = {}
    for word in dict.fromkeys(text.split()):
        # Terms hold only letters, digits and marks, so user text is never syntax.
        phrase = " ".join(terms(word))
        if phrase:
            quoted = f'"{phrase}"'
            folded = plain(word)
            others = [term for term in siblings(connection, folded) if term != folded]
            alternatives = " OR ".join([quoted, *(f'"{term}"' for term in others)])
            found[word] = f"({alternatives})" if others else quoted
    return (" OR " if any_word else " AND ").join(found.values()) or None
