"""Words of memories for the server's full-text search, split and folded here.

The server's own parser depends on its locale, and splits addresses and numbers differently. Both engines use
the terms of :mod:`memory.terms`, so that they find the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from memory.persistence import vocabulary
from memory.persistence.sql import Connection
from memory.terms import terms

#: Most letters of a word, and most words of a memory, in the server's index; the rest is not searched.
LONGEST, MOST = 400, 16_000


def words_of(text: str) -> list[str]:
    """Return the terms of a text in order."""
    return [term[:LONGEST] for term in terms(text)]


def vector_of(label: str, caption: str) -> str:
    """Return a ``tsvector`` of words and positions, with a gap between label and caption."""
    first = words_of(label)
    words = [*enumerate(first, 1), *enumerate(words_of(caption), len(first) + 2)]
    return " ".join(f"'{word}':{place}" for place, word in words[:MOST])


def counts_of(texts: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the number of memories with each word, from labels and captions."""
    found: Counter[str] = Counter()
    for label, caption in texts:
        found.update({*words_of(label), *words_of(caption)})
    return found


def expression(connection: Connection, text: str, *, any_word: bool = False) -> str | None:
    """Return a ``tsquery`` for the words of a text, each in all its forms in the store.

    Returns:
        The query, or ``None`` if there is nothing to look up.
    """
    found = []
    for word in dict.fromkeys(text.split()):
        parts = words_of(word)
        if parts:
            forms = [" <-> ".join(f"'{part}'" for part in parts)]
            if len(parts) == 1:
                forms += [
                    f"'{term}'" for term in vocabulary.siblings(connection, parts[0]) if term != parts[0]
                ]
            found.append(f"({' | '.join(forms)})")
    return (" | " if any_word else " & ").join(found) or None


def count(connection: Connection, counts: Counter[str], sign: int) -> None:
    """Add memories to the counts of their words, or subtract them with ``sign`` -1."""
    if not counts:
        return
    terms = list(counts)
    numbers = "{" + ",".join(str(sign * counts[term]) for term in terms) + "}"
    connection.execute(
        "INSERT INTO vocabulary (term, doc) SELECT * FROM unnest(?::text[], ?::bigint[])"
        " ON CONFLICT (term) DO UPDATE SET doc = vocabulary.doc + excluded.doc",
        (terms, numbers),
    )
    if sign < 0:
        connection.execute("DELETE FROM vocabulary WHERE term = ANY(?::text[]) AND doc <= 0", (terms,))


def subtract(connection: Connection, table: str) -> None:
    """Subtract the words of all memories of a table, optionally with a condition after its name."""
    connection.execute(
        "UPDATE vocabulary AS v SET doc = v.doc - s.ndoc"
        ' FROM ts_stat(?) AS s WHERE v.term = s.word COLLATE "C"',
        (f"SELECT words FROM {table}",),
    )
    connection.execute("DELETE FROM vocabulary WHERE doc <= 0")


def renew(connection: Connection) -> None:
    """Index again the words of all memories with text that is not ASCII; other words did not change."""
    others = "octet_length(label) <> char_length(label) OR octet_length(caption) <> char_length(caption)"
    connection.execute("LOCK TABLE memory IN SHARE ROW EXCLUSIVE MODE")
    subtract(connection, f"memory WHERE {others}")
    rows = connection.execute(f"SELECT id, label, caption FROM memory WHERE {others}").fetchall()
    connection.executemany(
        "UPDATE memory SET words = ?::tsvector WHERE id = ?",
        [(vector_of(label, caption), id) for id, label, caption in rows],
    )
    count(connection, counts_of((label, caption) for _, label, caption in rows), 1)
