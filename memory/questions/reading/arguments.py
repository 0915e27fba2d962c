"""Arguments of a question that may stand anywhere: times, points, radii and the map."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory.questions.errors import QuestionError
from memory.questions.reading.clocks import with_clocks
from memory.questions.reading.times import COUNTS, PHRASE, Span, is_clock, since_of, span_of

EARLIEST, LATEST = -(2**63), 2**63 - 1
#: Ends of a question in several scripts.
ENDS = "?!.,¿？！。؟، "
_DAY = 86_400 * 10**9
#: *Just before* a time, and *about* a time, in nanoseconds.
_SHORTLY, _ABOUT = 600 * 10**9, 1800 * 10**9
#: Metres in each unit of length.
_METRES = {
    **dict.fromkeys(("millimetre", "millimeter", "mm"), 0.001),
    **dict.fromkeys(("centimetre", "centimeter", "cm"), 0.01),
    **dict.fromkeys(("kilometre", "kilometer", "km"), 1000.0),
    **dict.fromkeys(("inches", "inch"), 0.0254),
    **dict.fromkeys(("foot", "feet", "ft"), 0.3048),
    **dict.fromkeys(("yard", "yd"), 0.9144),
    **dict.fromkeys(("mile", "mi"), 1609.344),
    **dict.fromkeys(("metre", "meter", "m"), 1.0),
}


def pattern(text: str) -> re.Pattern[str]:
    """Return a compiled pattern that ignores the case of letters."""
    return re.compile(text, re.IGNORECASE)


#: Pattern of a coordinate.
NUMBER = r"[-+]?\d+(?:\.\d+)?"
_POINT = rf"\(?\s*(?P<x>{NUMBER})\s*(?:,\s*|\s+)(?P<y>{NUMBER})(?:\s*(?:,\s*|\s+)(?P<z>{NUMBER}))?\s*\)?"
#: Pattern of a unit of length.
LENGTH_UNIT = rf"(?:{'|'.join(_METRES)})s?"
_RADIUS = rf"(?P<radius>\d+(?:\.\d+)?|{'|'.join(COUNTS)}) ?(?P<unit>{LENGTH_UNIT})"
_WITHIN = rf"(?:(?:with)?in|less than|at most|closer than) {_RADIUS} (?:of|around|from|to)"
_TIME = pattern(r"\?P<\w+>").sub("?:", PHRASE)
_DURING_WORDS = r"(?:on|in|during|within|of|from|at|over|for)(?: the)?"
_SHORT = r"(?P<short>(?:just|shortly|right|immediately|directly) )?"

_BETWEEN = pattern(rf"\b(?:between|from) (?P<first>{_TIME}) (?:and|to|until|till) (?P<last>{_TIME})(?!\w)")
_SINCE = pattern(
    rf"\b{_SHORT}(?:since|after|starting|from|compared (?:to|with)) (?P<when>{_TIME})(?: on(?:wards)?)?(?!\w)"
)
_BEFORE = pattern(rf"\b{_SHORT}(?:before|until|till|up to) (?P<when>{_TIME})(?!\w)")
_AROUND = pattern(rf"\b(?:at )?(?:about|around|roughly|approximately) (?P<when>{_TIME})(?!\w)")
_DURING = pattern(
    rf"(?<!\w)(?<!most )(?<!least )(?<!more )(?<!less )(?:{_DURING_WORDS} )?(?P<when>{_TIME})(?!\w)"
)
_PLACE = pattern(
    rf"\b(?:{_WITHIN}|near|nearby|around|close to|next to|beside|at|by|in|on|to|from) {_POINT}"
    rf"(?: within {_RADIUS.replace('radius', 'radius2').replace('unit', 'unit2')})?(?!\w)"
)
_RADIUS_OF = pattern(rf"\b{_WITHIN}(?= \D)")
_MAP = pattern(r"(?<!\bwhich)(?<!\bwhat)\s(?:(?:in|on|of) (?:the )?)?map (?P<map>[^\s,;]+)(?=\s|$)")
_IN_UNITS = pattern(
    r"\sin (?P<unit>(?:milli|centi|kilo)?met(?:re|er)s|inches|feet|yards|miles|[cmk]?m)(?=\s|$)"
)
ONLY_POINT = pattern(rf"^{_POINT}$")


@dataclass
class Arguments:
    """Arguments of a question; ``None`` for those that were not given.

    Attributes:
        rest: the other words.
        near: x, y (and z) in metres.
        radius_m: around it.
        between: first and last nanosecond.
        since: nanoseconds.
        map_id: of the map.
        unit: of the distance that is asked for, as typed.
    """

    rest: str
    near: tuple[float, ...] | None = None
    radius_m: float | None = None
    between: Span | None = None
    since: int | None = None
    map_id: str | None = None
    unit: str | None = None


def arguments_of(words: str, now_ns: int) -> Arguments:
    """Take times, points, radii and the map out of a question.

    Raises:
        QuestionError: a range of times ends before it starts.
        ValueError: a time does not exist.
    """
    found = Arguments("")
    if match := _MAP.search(words):
        found.map_id, words = match["map"], f"{words[: match.start()]}{words[match.end() :]}"
    if match := _IN_UNITS.search(words):
        found.unit = match["unit"]
        words = f"{words[: match.start()].rstrip(', ')}{words[match.end() :]}"
    words = _take_time(with_clocks(words), found, now_ns)
    if match := _PLACE.search(words) or ONLY_POINT.match(words):
        parts = match.groupdict()
        numbers = (parts["x"], parts["y"], parts["z"])
        found.near = tuple(float(number) for number in numbers if number is not None)
        found.radius_m = _metres(parts.get("radius"), parts.get("unit"))
        if found.radius_m is None:
            found.radius_m = _metres(parts.get("radius2"), parts.get("unit2"))
        words = _without(words, match)
    elif match := _RADIUS_OF.search(words):
        found.radius_m = _metres(match["radius"], match["unit"])
        words = _without(words, match, by=" near ")
    found.rest = words
    return found


def time_in(words: str) -> str | None:
    """Return the first time of a sentence with its preposition, such as *on Sunday*, or ``None``."""
    match = _SINCE.search(words) or _first_time(words)
    return None if match is None else match[0].strip()


def metres_in(unit: str) -> float:
    """Return the length of a unit such as *feet* in metres."""
    words = unit.lower()
    return _METRES.get(words) or _METRES[words.removesuffix("s")]


def _metres(number: str | None, unit: str | None) -> float | None:
    if number is None or unit is None:
        return None
    return (COUNTS.get(number.lower()) or float(number)) * metres_in(unit)


def _take_time(words: str, found: Arguments, now_ns: int) -> str:
    """Set the time, and return the words without it."""
    if match := _BETWEEN.search(words):
        found.between = _between(match["first"], match["last"], now_ns)
    elif match := _SINCE.search(words):
        found.since = since_of(match["when"], now_ns)
        if match["short"]:
            last = span_of(match["when"], now_ns).last
            found.since, found.between = None, Span(last, min(last + _SHORTLY, LATEST))
    elif match := _BEFORE.search(words):
        first = span_of(match["when"], now_ns).first
        found.between = Span(max(first - _SHORTLY, EARLIEST) if match["short"] else EARLIEST, first)
    elif (match := _AROUND.search(words)) and _has_clock(match["when"]):
        first, last = span_of(match["when"], now_ns)
        found.between = Span(max(first - _ABOUT, EARLIEST), min(last + _ABOUT, LATEST))
    elif match := _first_time(words):
        found.between = span_of(match["when"], now_ns)
    return _without(words, match)


def _has_clock(phrase: str) -> bool:
    return ":" in phrase or phrase.lower().endswith(("am", "pm", "noon", "midnight", "o'clock"))


def _first_time(words: str) -> re.Match[str] | None:
    """Return the first time in the words that is no id: "memory 1234567890" has none."""
    for match in _DURING.finditer(words):
        before = words[: match.start()].lower().split()
        named = bool(before) and before[-1].endswith(("#", "like", "to"))
        if not (match["when"].isdecimal() and named) and match["when"].lower() != "now":
            return match
    return None


def _without(words: str, match: re.Match[str] | None, by: str = " ") -> str:
    if match is None:
        return words
    return " ".join(f"{words[: match.start()]}{by}{words[match.end() :]}".split()).strip(ENDS)


def _between(first_words: str, last_words: str, now_ns: int) -> Span:
    first, last = span_of(first_words, now_ns).first, span_of(last_words, now_ns).last
    if is_clock(first_words) and is_clock(last_words):
        # The first time that the clock shows this after the first one, be it still to come.
        last = span_of(last_words, first + _DAY - 1).last
    elif first > last and is_clock(first_words):
        first = span_of(first_words, last).first  # Between 9:00 and 10:00 yesterday.
    if first > last:
        raise QuestionError("text", f"'{first_words}' is after '{last_words}'. Swap the two times")
    return Span(first, last)
