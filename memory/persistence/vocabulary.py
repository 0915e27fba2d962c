"""The words that a store has, and which of them a word that is asked for means.

The text index holds words as they were written, but folded. A word of a question stands for all of them with
its stem, which are looked up in the vocabulary of the index: stems can change without a migration.
"""

from __future__ import annotations

import re

from memory.persistence.contract import Connection
from memory.terms import terms
from memory.wording import fold, forms, nearest, stem

#: Words with the same beginning that are looked at.
MOST_TERMS = 65536
_ENGLISH = re.compile(r"[a-z]+")
#: Letters of a stem that its forms surely share: city and cities, but not only the c.
_LEAST = 3


def expression(connection: Connection, text: str, *, any_word: bool = False) -> str | None:
    """An FTS5 expression for the words of a text, each in all its forms that the store has.

    Returns:
        ``None`` where nothing could be looked up.
    """
    found = {}
    for word in dict.fromkeys(text.split()):
        # Terms hold letters, digits and their marks: nothing of the user's is syntax.
        phrase = " ".join(terms(word))
        if phrase:
            quoted = f'"{phrase}"'
            plain = _plain(word)
            others = [term for term in siblings(connection, plain) if term != plain]
            alternatives = " OR ".join([quoted, *(f'"{term}"' for term in others)])
            found[word] = f"({alternatives})" if others else quoted
    return (" OR " if any_word else " AND ").join(found.values()) or None


def siblings(connection: Connection, word: str) -> list[str]:
    """The words of a store that have the stem of a folded word; itself where it is not a plain word."""
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
    """For words of a text that the store has in no form, the word of the store that is nearly the same."""
    found = {}
    for word in dict.fromkeys(text.split()):
        folded = _plain(word)
        if not _ENGLISH.fullmatch(folded) or siblings(connection, folded):
            continue
        frequent = sorted(_terms(connection, folded[:1]), key=lambda entry: (-entry[1], entry[0]))
        by_stem = {stem(term): (term, count) for term, count in reversed(frequent)}
        meant = nearest(stem(folded), ((root, count) for root, (_, count) in by_stem.items()))
        if meant is not None:
            found[word] = by_stem[meant][0]
    return found


def _plain(word: str) -> str:
    """A word as the index has it, without marks before and after it."""
    return re.sub(r"^\W+|\W+$", "", fold(word))


def _terms(connection: Connection, beginning: str) -> list[tuple[str, int]]:
    """Words that begin so, and how many memories have each; of a connection for reading, which knows them."""
    sql = "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?"
    return connection.execute(sql, (beginning, beginning + "\U0010ffff", MOST_TERMS)).fetchall()
