"""Content words and dates of a sentence."""

from __future__ import annotations

from typing import NamedTuple

from memory.terms import fold, words
from memory.wording.dates import Date, dates_of
from memory.wording.stems import stem
from memory.wording.unspaced import content_parts, has_function_words

#: Minimum words of a question that is recognized by its question mark only.
_QUESTION = 3
#: Most words of a sentence that are looked up.
_MOST = 64

#: Conjunctions and endings such as the s of Mary's, which do not make a sentence.
_JOINING = frozenset(["and", "or", "but", "nor", "s", "t", "d", "ll", "m", "re", "ve"])
_HOLDING = """
    a an the of to in on at by for with from into onto about as than then if so because while
    is are was were be been being am do does did done has have had having would could should shall must
    what when where who whom whose which how why whether that this these those there here
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
"""
#: Function words. Words that may also be objects or names are missing: can, will, may.
FUNCTION_WORDS = _JOINING.union(_HOLDING.split())


class Sentence(NamedTuple):
    """Content of a sentence.

    Attributes:
        words: folded content words with distinct stems.
        dates: dates in the sentence.
    """

    words: tuple[str, ...]
    dates: tuple[Date, ...]


def read_sentence(text: str) -> Sentence | None:
    """Return the content of a sentence; ``None`` if the text is only words.

    A sentence has a function word, such as *in* or *the*, a date with a month, or a question mark after three
    words or more. It also has other words.
    """
    plain = " ".join(fold(text).split())
    said, dates = words(text), dates_of(plain)
    holding = bool(FUNCTION_WORDS.intersection(said) - _JOINING) or has_function_words(said)
    asking = plain.endswith("?") and len(said) >= _QUESTION
    if not (holding or asking or any(date.month for date in dates)):
        return None
    asked: dict[str, str] = {}
    for word in said:
        if word not in FUNCTION_WORDS:
            for part in content_parts(word):
                asked.setdefault(stem(part), part)
    return Sentence(tuple(asked.values())[:_MOST], dates) if asked else None


def content_words(text: str) -> str:
    """Return a text without function words; the whole text if nothing else is left."""
    kept = [word for word in text.split() if fold(word) not in FUNCTION_WORDS]
    return " ".join(kept) or text
