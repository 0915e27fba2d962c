"""Words of a store, and their match with the words of a query.

The text index holds words as written, but folded. A query word stands for all words of the index with its
stem, so that stems can change without a migration.
"""

from __future__ import annotations

import re

from memory.persistence.sql import Connection
from memory.wording import fold, forms, nearest, stem

#: Most words with the same beginning that are compared.
MOST_TERMS = 65536
_ENGLISH = re.compile(r"[a-z]+")
#: Letters of a stem that its forms share: city and cities have more than the c in common.
_LEAST = 3


def siblings(connection: Connection, word: str) -> list[str]:
    """Return the words of a store with the stem of a folded word; only itself if it is not a plain word."""
    if not _ENGLISH.fullmatch(word):
        return [word]
    root = stem(word)
    terms = {word} if len(word) < _LEAST else set()
    if len(root) >= _LEAST:
        beginning = root[: max(_LEAST, len(root) - 1)]
        terms.update(term for term, _ in _terms(connection, beginning) if stem(term) == root)
    for form in forms(word):
        terms.update(term for term, _ in _terms(connection, form) if term == form)
    return sorted(terms)


def corrections(connection: Connection, text: str) -> dict[str, str]:
    """Return, for words that the store does not have in any form, its most similar word."""
    found = {}
    for word in dict.fromkeys(text.split()):
        folded = plain(word)
        if not _ENGLISH.fullmatch(folded) or siblings(connection, folded):
            continue
        frequent = sorted(_terms(connection, folded[:1]), key=lambda entry: (-entry[1], entry[0]))
        by_stem = {stem(term): (term, count) for term, count in reversed(frequent)}
        meant = nearest(stem(folded), ((root, count) for root, (_, count) in by_stem.items()))
        if meant is not None:
            found[word] = by_stem[meant][0]
    return found


def plain(word: str) -> str:
    """Return a word as the index has it, without punctuation around it."""
    return re.sub(r"^\W+|\W+$", "", fold(word))


def _terms(connection: Connection, beginning: str) -> list[tuple[str, int]]:
    """Return words with this beginning and their number of memories; needs a reading connection."""
    sql = "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?"
    return connection.execute(sql, (beginning, beginning + "\U0010ffff", MOST_TERMS)).fetchall()
