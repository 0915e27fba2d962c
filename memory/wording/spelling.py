"""Words that differ by a slip: a letter too few, too many, another one, or two changed about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def allowed(word: str) -> int:
    """Slips that a word may have: the shorter, the sooner it is another word."""
    return 0 if len(word) < 4 else 1 if len(word) < 8 else 2


def distance(one: str, other: str, most: int) -> int:
    """Slips between two words (optimal string alignment), or ``most + 1`` where there are more.

    Args:
        one, other: words.
        most: at which to stop.
    """
    if abs(len(one) - len(other)) > most or len(set(one) ^ set(other)) > 2 * most:
        return most + 1  # A slip adds and takes away one letter at most.
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
    """The known word that is meant; ``None`` where none is near enough.

    Args:
        word: folded.
        known: folded words and how often each is there. Of equally near ones the most frequent is meant, of
            these the first in the alphabet.
    """
    most = allowed(word)
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
