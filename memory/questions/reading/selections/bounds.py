"""Bounds of measures in the grammar: *taller than 1 m*, *seen at least 20 times*, *there for ten days*."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from memory.questions.boxes import RankMeasure
from memory.questions.reading.arguments import LENGTH_UNIT, ONLY_POINT, metres_in, pattern
from memory.questions.reading.comparing import COMPARED_MEASURES
from memory.questions.reading.grammar import PREPOSITIONS, Chunk
from memory.questions.reading.parsed import Bound, ObjectCondition, ParsedQuestion
from memory.questions.reading.times import COUNTS, TIME_UNITS

_NUMBERS = {**COUNTS, "eleven": 11, "once": 1, "twice": 2}
_SPEEDS = {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704}
_AMOUNT = pattern(
    rf"^(?:(?P<times>once|twice)|(?P<number>\d+(?:\.\d+)?|{'|'.join(COUNTS)}) ?"
    rf"(?P<unit>times|time|m³|cubic met(?:re|er)s?|{'|'.join(map(re.escape, _SPEEDS))}|{LENGTH_UNIT}"
    rf"|(?:{'|'.join(TIME_UNITS)})s?))(?P<rest>(?: .*)?)$"
)
_BOUNDS: Mapping[str, Bound] = {
    "at least": "at least",
    "at most": "at most",
    "more than": "more",
    "fewer than": "less",
    "less than": "less",
    "no more than": "at most",
    "not more than": "at most",
}
#: Words of each bound.
BOUND_WORDS: Mapping[Bound, str] = {
    "more": "more than",
    "less": "less than",
    "at least": "at least",
    "at most": "at most",
    "exactly": "exactly",
}
#: The bound of an earlier time for that of a longer duration.
_EARLIER: Mapping[Bound, Bound] = {
    "more": "less",
    "less": "more",
    "at least": "at most",
    "at most": "at least",
}
#: Adjectives after a length: *more than 1 m tall*.
_SIDES: Mapping[str, RankMeasure] = {"tall": "height", "high": "height", "long": "length", "wide": "width"}
_FAR = ("farther", "further", "farther away")
#: Measures in metres.
_LENGTHS = ("height", "length", "width", "elevation")

#: List of what is there.
PRESENT = ParsedQuestion("select", states=("present", "unknown"))


class Amount(NamedTuple):
    """A number with its unit, and the words after it.

    Attributes:
        kind: quantity.
        value: metres, cubic metres, metres a second, nanoseconds or observations.
        rest: words after it.
    """

    kind: Literal["length", "volume", "speed", "time", "times"]
    value: float
    rest: str


class BoundFound(NamedTuple):
    """A bound in the chunks of a question.

    Attributes:
        conditions: the bound, and what it implies.
        end: place of the first chunk after it.
        rest: words after it that stand in its last chunk.
    """

    conditions: tuple[ObjectCondition, ...]
    end: int
    rest: str


def amount_of(words: str) -> Amount | None:
    """Return the number and unit that words begin with; ``None`` if they do not."""
    found = _AMOUNT.match(words)
    if found is None:
        return None
    rest = found["rest"].strip()
    if found["times"]:
        return Amount("times", _NUMBERS[found["times"].lower()], rest)
    number, unit = found["number"].lower(), found["unit"].lower()
    value = _NUMBERS.get(number) or float(number)
    if unit.startswith("time"):
        return Amount("times", value, rest)
    if unit in _SPEEDS:
        return Amount("speed", value * _SPEEDS[unit], rest)
    if unit == "m³" or unit.startswith("cubic"):
        return Amount("volume", value, rest)
    span = TIME_UNITS.get(unit) or TIME_UNITS.get(unit.removesuffix("s"))
    if span is not None:
        return Amount("time", value * span, rest)
    return Amount("length", value * metres_in(unit), rest)


def bound_at(chunks: Sequence[Chunk], at: int, now_ns: int) -> BoundFound | None:
    """Return the bound that begins at a chunk; ``None`` if there is none or it is ambiguous."""
    kind = chunks[at].kind
    following = chunks[at + 1].kind if at + 1 < len(chunks) else ""
    if kind in ("COMPARE", "CLOSER") and following == "THAN":
        return _compared(chunks, at, now_ns)
    if kind == "QUANTITY":
        return _quantity(chunks, at, _BOUNDS[chunks[at].text.lower()], now_ns)
    if kind == "OF" and chunks[at].text.lower() == "for":
        bound: Bound = "at least"
        if following == "QUANTITY":
            bound, at = _BOUNDS[chunks[at + 1].text.lower()], at + 1
        return _staying(chunks, at, bound, now_ns)
    only = kind == "NOT" and chunks[at].text.lower() == "only"
    if only or (kind == "NOUN" and at > 0 and chunks[at - 1].kind in ("FILLER", "SEE")):
        return _counted(chunks, at + only)
    return None


def _operand(chunks: Sequence[Chunk], at: int) -> tuple[str, int]:
    """Return the words of a noun phrase or point at a place, and where it ends; no words without one."""
    end = at
    while end < len(chunks) and chunks[end].kind in ("DET", "FILLER"):
        end += 1
    if end == len(chunks) or chunks[end].kind != "NOUN":
        return "", at
    first, end = end, end + 1
    while chunks[first].text.startswith("(") and ")" not in chunks[end - 1].text and end < len(chunks):
        end += 1
    article = chunks[first - 1].text.lower() if first > at and chunks[first - 1].kind == "DET" else ""
    words = " ".join(chunk.text for chunk in chunks[first:end])
    return (
        f"{article} {words}" if article in ("a", "an") and amount_of(f"{article} {words}") else words
    ), end


def _words(chunks: Sequence[Chunk], rest: str = "") -> str:
    words = " ".join(chunk.text for chunk in chunks).removesuffix(rest).strip()
    return words.replace(" ,", ",").replace(" )", ")")


def _compared(chunks: Sequence[Chunk], at: int, now_ns: int) -> BoundFound | None:
    """Return the bound of *taller than the fridge* and *farther than 5 m from the sofa*."""
    said = chunks[at].text.lower()
    words, end = _operand(chunks, at + 2)
    amount = amount_of(words)
    if not words:
        return None
    if chunks[at].kind == "CLOSER":
        fits = said in _FAR and amount is not None and amount.kind == "length" and not amount.rest
        return _distance(chunks, at, end, "more", amount.value) if fits and amount is not None else None
    measure, order = COMPARED_MEASURES[said.split()[0]]
    bound: Bound = "less" if order == "less" else "more"
    if amount is None:
        if words.lower() in _SIDES or (end < len(chunks) and chunks[end].kind in PREPOSITIONS):
            return None  # "Taller than the table in the kitchen": the place of the table, or of the list.
        found = ObjectCondition(_words(chunks[at:end]), measure=measure, bound=bound, anchor=words)
        return BoundFound((found,), end, "")
    value = amount.value
    if amount.kind == "time" and (measure == "first_seen" or said == "longer"):
        bound = bound if measure == "first_seen" else "less"
        measure, value = "first_seen", now_ns - amount.value
    fitting = {
        "length": measure in _LENGTHS,
        "volume": measure == "size",
        "speed": measure == "speed",
        "times": measure == "observations",
        "time": measure == "first_seen",
    }
    if not fitting[amount.kind]:
        return None
    words = _words(chunks[at:end], amount.rest)
    return BoundFound((ObjectCondition(words, measure=measure, bound=bound, value=value),), end, amount.rest)


def _quantity(chunks: Sequence[Chunk], at: int, bound: Bound, now_ns: int) -> BoundFound | None:
    """Return the bound of *more than 5 m from the sofa*, *at least 1 m tall* and *more than 20 times*."""
    words, end = _operand(chunks, at + 1)
    amount = amount_of(words)
    if amount is None:
        return None
    if amount.kind == "times":
        return _counted(chunks, at + 1, bound, at)
    if amount.kind != "length":
        return None
    adjective, _, rest = amount.rest.partition(" ")
    if not adjective and end < len(chunks) and chunks[end].kind == "ATTRIBUTE":
        adjective, end = chunks[end].text.lower(), end + 1
    if adjective in _SIDES:
        found = ObjectCondition(
            _words(chunks[at:end], rest), measure=_SIDES[adjective], bound=bound, value=amount.value
        )
        return BoundFound((found,), end, rest)
    if adjective or bound in ("less", "at most"):
        return None  # "Less than 5 m from" is the radius of a place.
    return _distance(chunks, at, end, bound, amount.value)


def _distance(chunks: Sequence[Chunk], at: int, end: int, bound: Bound, value: float) -> BoundFound | None:
    """Return the bound of a distance, whose origin follows at ``end``."""
    while end < len(chunks) and chunks[end].kind == "FILLER":
        end += 1
    from_ = end < len(chunks) and chunks[end].text.lower() in ("from", "away from", "to")
    origin, end = _operand(chunks, end + 1) if from_ else ("", end)
    if not origin or (end < len(chunks) and chunks[end].kind in PREPOSITIONS):
        return None
    place = ONLY_POINT.match(origin)
    near = None if place is None else (float(place["x"]), float(place["y"]))
    anchor = origin if near is None else None
    words = _words(chunks[at:end])
    found = ObjectCondition(words, measure="distance", bound=bound, value=value, near=near, anchor=anchor)
    return BoundFound((found,), end, "")


def _counted(
    chunks: Sequence[Chunk], at: int, bound: Bound = "exactly", start: int | None = None
) -> BoundFound | None:
    """Return the bound of *seen only once*, *more than 20 times* and *exactly twice*."""
    seen = next((place for place in range(at, min(at + 2, len(chunks))) if chunks[place].kind == "SEE"), None)
    words, end = _operand(chunks, at if seen is None else seen + 1)
    amount = amount_of(words)
    if amount is None or amount.kind != "times" or not any(chunk.kind == "SEE" for chunk in chunks):
        return None
    start = at if start is None else start
    said = " ".join(chunk.text for chunk in chunks[start:end] if chunk.kind != "SEE")
    words = f"seen {'' if bound != 'exactly' else 'exactly '}{said.removesuffix(amount.rest).strip()}"
    found = ObjectCondition(words, measure="observations", bound=bound, value=amount.value)
    return BoundFound((found,), end, amount.rest)


def _staying(chunks: Sequence[Chunk], at: int, bound: Bound, now_ns: int) -> BoundFound | None:
    """Return the bound of *there for more than ten days*."""
    words, end = _operand(chunks, at + 1)
    amount = amount_of(words)
    kinds = {chunk.kind for chunk in chunks}
    if amount is None or amount.kind != "time" or amount.rest or kinds & {"SEE", "MOVE", "LEFT", "CHANGE"}:
        return None
    if not kinds & {"THERE", "HERE", "STAY"}:
        return None
    words = f"there for {BOUND_WORDS[bound]} {words}"
    found = ObjectCondition(words, measure="first_seen", bound=_EARLIER[bound], value=now_ns - amount.value)
    return BoundFound((found, ObjectCondition("", (PRESENT,))), end, "")
