"""Edit distance of words: missing, additional, different and swapped letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def allowed_edits(word: str) -> int:
    """Return the allowed number of misspellings, which depends on the length."""
    return 0 if len(word) < 4 else 1 if len(word) < 8 else 2


def distance(one: str, other: str, most: int) -> int:
    """Return the edit distance of two words (optimal string alignment), at most ``most + 1``."""
    if abs(len(one) - len(other)) > most or len(set(one) ^ set(other)) > 2 * most:
        return most + 1  # Each edit adds and removes one letter at most.
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        following = [i]
        for j, its in enumerate(other, 1):
            cost = min(row[j] + 1, following[j - 1] + 1, row[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        if min(following) > most:
            return most + 1
        before, row = row, following
    return min(row[-1], most + 1)


def nearest(word: str, known: Mapping[str, int] | Iterable[tuple[str, int]]) -> str | None:
    """Return the most similar known word; ``None`` if none is similar enough.

    Args:
        word: folded word.
        known: folded words and their counts. Of equally similar words the most frequent is chosen, then
            the first in the alphabet.
    """
    most = allowed_edits(word)
    if most == 0:
        return None
    entries = known.items() if isinstance(known, Mapping) else known
    best: tuple[int, int, str] | None = None
    for other, count in entries:
        if other.isdecimal():
            continue
        slips = distance(word, other, most)
        found = (slips, -count, other)
        if slips <= most and (best is None or found < best):
            best = found
    return None if best is None else best[2]
