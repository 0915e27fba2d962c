"""What a sentence asks for: its words that say something, and the dates that it names."""

from __future__ import annotations

from typing import NamedTuple

from memory.terms import fold, words
from memory.wording.dates import Date, dates_of
from memory.wording.stems import stem

#: What joins words, or is left over of others as the s of Mary's, and makes no sentence of them.
_JOINING = frozenset(["and", "or", "but", "nor", "s", "t", "d", "ll", "m", "re", "ve"])
_HOLDING = """
    a an the of to in on at by for with from into onto about as than then if so because while
    is are was were be been being am do does did done has have had having would could should shall must
    what when where who whom whose which how why whether that this these those there here
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
"""
#: Words that hold a sentence together and say nothing of what it is about. None of them names a thing: can,
#: will and may are left out.
FUNCTION_WORDS = _JOINING.union(_HOLDING.split())


class Sentence(NamedTuple):
    """What memories are compared with.

    Attributes:
        words: folded, each with a stem of its own.
        dates: that are named.
    """

    words: tuple[str, ...]
    dates: tuple[Date, ...]


def read_sentence(text: str) -> Sentence | None:
    """What a text asks for, if it is a sentence; ``None`` for mere words.

    A sentence has a function word, such as *in* or *the*, or a date with its month, and words besides.
    """
    plain = " ".join(fold(text).split())
    said, dates = words(text), dates_of(plain)
    holding = FUNCTION_WORDS.intersection(said) - _JOINING
    if not (holding or any(date.month for date in dates)):
        return None
    asked: dict[str, str] = {}
    for word in said:
        if word not in FUNCTION_WORDS:
            asked.setdefault(stem(word), word)
    return Sentence(tuple(asked.values()), dates) if asked else None


def content_words(text: str) -> str:
    """The words of a text without those that only hold a sentence together; all where none is left."""
    kept = [word for word in text.split() if fold(word) not in FUNCTION_WORDS]
    return " ".join(kept) or text
