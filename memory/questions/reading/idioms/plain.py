"""Fixed expressions and the plainer words that mean the same, as pairs of patterns and replacements.

*Did they get any post* becomes *was there any post*. An expression is here only if the replacement means the
same for every object.
"""

from __future__ import annotations

import re

from memory.questions.reading.arguments import LENGTH_UNIT, pattern
from memory.questions.reading.idioms import (
    comparing,
    fillers,
    going,
    objects,
    operators,
    presence,
    purposes,
    selecting,
)
from memory.questions.reading.idioms.parts import SUPERLATIVES

_MEASURES = {"height": "tall", "width": "wide", "breadth": "wide", "length": "long", "size": "big"}
_HALVES = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10,
}  # fmt: skip
_HALF = pattern(
    rf"\b(?P<number>\d+|{'|'.join(_HALVES)}) (?:and a half (?P<unit>{LENGTH_UNIT}|hours?|days?|weeks?)"
    rf"|(?P<unit2>met(?:re|er)|hour|day|week|foot|kilomet(?:re|er)) and a half)\b"
)
_WHICH_OF = pattern(
    rf"\bwhich (?:one )?of (?:the|my|our|these|those) (?:two|2|three|3|four|4) (?P<what>[\w ]+?) "
    rf"(?P<verb>is|are|was|were|stands|lies|sits) (?:the )?(?P<word>{'|'.join(SUPERLATIVES)})\b"
)
_OF_SO_MANY = pattern(r"\bwhich (?:one )?of the (?:two|three|four|five|six|\d+) (?=\w)")
_SIZE_OF = pattern(
    rf"^(?:(?:what|whats|what's) ?(?:is |was )?|(?:state|give|report|tell|list|specify)(?: me)? )"
    rf"(?:the |its )?(?:exact |overall |total |approximate |maximum )?(?P<side>{'|'.join(_MEASURES)}) of "
    rf"(?=\w)"
)
_LISTS = (purposes, operators, going, comparing, objects, fillers, presence, selecting)
_COMPILED = tuple((pattern(words), by) for one in _LISTS for words, by in one.PAIRS)


def plainer(words: str) -> str:
    """Return a question with plainer words in place of fixed expressions."""
    for expression, by in _COMPILED:
        words = expression.sub(by, words)
    words = _HALF.sub(_with_half, words)
    words = _WHICH_OF.sub(
        lambda found: f"which {found['what']} {found['verb']} {SUPERLATIVES[found['word'].lower()]}", words
    )
    words = _OF_SO_MANY.sub("which of the ", words)
    words = _SIZE_OF.sub(lambda found: f"how {_MEASURES[found['side'].lower()]} is ", words)
    return " ".join(words.split())


def _with_half(found: re.Match[str]) -> str:
    number = found["number"].lower()
    whole = _HALVES.get(number) or int(number)
    return f"{whole}.5 {found['unit'] or found['unit2']}"
