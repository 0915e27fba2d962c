"""Times as people say them: yesterday, the last two hours, since Monday's date."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from memory.exchange.times import parse_time

_SECOND = 10**9
_DAY = 86_400 * _SECOND
_UNITS = {"second": _SECOND, "minute": 60 * _SECOND, "hour": 3600 * _SECOND, "day": _DAY, "week": 7 * _DAY}
_COUNTS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "twelve": 12, "few": 3, "couple of": 2,
}  # fmt: skip
_AMOUNT = rf"(?P<count>\d{{1,6}}|{'|'.join(_COUNTS)}) (?P<unit>{'|'.join(_UNITS)})s?"
_ISO = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?(?:Z|[+-]\d{2}:\d{2})?|\d{10,19}|now"
_LATEST = 2**63 - 1


class Span(NamedTuple):
    """First and last nanosecond."""

    first: int
    last: int


#: A phrase in one piece, longest ways of saying it first.
PHRASE = (
    rf"the day before yesterday|yesterday|today|this week|(?:the )?(?:last|past) {_AMOUNT}"
    rf"|(?:the )?(?:last|past) (?P<single>{'|'.join(_UNITS)})|(?:a )?{_AMOUNT.replace('?P<', '?P<ago_')} ago"
    rf"|(?P<iso>{_ISO})"
)
_WHOLE = re.compile(PHRASE, re.IGNORECASE)


def span_of(phrase: str, now_ns: int) -> Span:
    """The time that a phrase speaks of; days are those of UTC.

    Raises:
        ValueError: no time that is understood.
    """
    found = _WHOLE.fullmatch(phrase.strip())
    if found is None:
        raise ValueError(f"{phrase!r} is no time that is understood")
    words = phrase.strip().lower()
    today = now_ns - now_ns % _DAY
    days: dict[str, Callable[[], Span]] = {
        "today": lambda: Span(today, today + _DAY - 1),
        "yesterday": lambda: Span(today - _DAY, today - 1),
        "the day before yesterday": lambda: Span(today - 2 * _DAY, today - _DAY - 1),
        "this week": lambda: Span(today - (today // _DAY + 3) % 7 * _DAY, now_ns),
    }
    if words in days:
        return days[words]()
    if found["iso"]:
        text = found["iso"].replace(" ", "T").replace("t", "T")
        return Span(parse_time(text), parse_time(text, end=True)) if text != "now" else Span(now_ns, now_ns)
    if found["single"]:
        return _within(now_ns - _UNITS[found["single"].lower()], now_ns)
    if found["ago_count"]:
        unit = _UNITS[found["ago_unit"].lower()]
        at = now_ns - _count(found["ago_count"]) * unit
        return _within(at - unit // 2, at + unit // 2)
    return _within(now_ns - _count(found["count"]) * _UNITS[found["unit"].lower()], now_ns)


def since_of(phrase: str, now_ns: int) -> int:
    """The time that something is said to be since.

    Raises:
        ValueError: no time that is understood.
    """
    found = _WHOLE.fullmatch(phrase.strip())
    if found is not None and found["ago_count"]:
        first, last = span_of(phrase, now_ns)
        return (first + last) // 2
    return span_of(phrase, now_ns).first


def until_now(first_ns: int) -> Span:
    """Everything from a time on."""
    return Span(first_ns, _LATEST)


def _count(word: str) -> int:
    return int(word) if word.isdecimal() else _COUNTS[word.lower()]


def _within(first: int, last: int) -> Span:
    if first < -(2**63) or last >= 2**63:
        raise ValueError("a time so far away does not fit into 64 bits of nanoseconds")
    return Span(first, last)
