"""Words of memories for the server's full-text search: cut and folded here, looked up there.

The server's own parser depends on its locale and takes addresses and numbers apart in its way. Both engines
are to find the same: words are the terms of :mod:`memory.terms`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from memory.persistence import vocabulary
from memory.persistence.contract import Connection
from memory.terms import terms

#: Letters of a word, and words of a memory, that the server's index takes; what is beyond is not looked up.
LONGEST, MOST = 400, 16_000


def words_of(text: str) -> list[str]:
    """The terms of a text in order."""
    return [term[:LONGEST] for term in terms(text)]


def vector_of(label: str, caption: str) -> str:
    """A ``tsvector`` of a memory's words with their places; a gap parts the label from the caption."""
    first = words_of(label)
    words = [*enumerate(first, 1), *enumerate(words_of(caption), len(first) + 2)]
    return " ".join(f"'{word}':{place}" for place, word in words[:MOST])


def counts_of(texts: Iterable[tuple[str, str]]) -> Counter[str]:
    """How many memories have each word, of labels and captions."""
    found: Counter[str] = Counter()
    for label, caption in texts:
        found.update({*words_of(label), *words_of(caption)})
    return found


def expression(connection: Connection, text: str, *, any_word: bool = False) -> str | None:
    """A ``tsquery`` for the words of a text, each in all its forms that the store has.

    Returns:
        ``None`` where nothing could be looked up.
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
    """Add memories to the counts of their words, or with ``sign`` -1 take them out."""
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


def leave_out(connection: Connection, table: str) -> None:
    """Take the words of all memories of a table, or of those that a condition after its name is true of, out
    of the counts.
    """
    connection.execute(
        "UPDATE vocabulary AS v SET doc = v.doc - s.ndoc"
        ' FROM ts_stat(?) AS s WHERE v.term = s.word COLLATE "C"',
        (f"SELECT words FROM {table}",),
    )
    connection.execute("DELETE FROM vocabulary WHERE doc <= 0")


def renew(connection: Connection) -> None:
    """Index the words of all memories anew whose texts are not ASCII: others have the same as ever."""
    others = "octet_length(label) <> char_length(label) OR octet_length(caption) <> char_length(caption)"
    connection.execute("LOCK TABLE memory IN SHARE ROW EXCLUSIVE MODE")
    leave_out(connection, f"memory WHERE {others}")
    rows = connection.execute(f"SELECT id, label, caption FROM memory WHERE {others}").fetchall()
    connection.executemany(
        "UPDATE memory SET words = ?::tsvector WHERE id = ?",
        [(vector_of(label, caption), id) for id, label, caption in rows],
    )
    count(connection, counts_of((label, caption) for _, label, caption in rows), 1)
