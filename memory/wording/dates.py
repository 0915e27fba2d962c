"""Dates in a text: 7 July 2023, July 7th, in July, 2023-07-07, 2023."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
_SHORT = {name[:3]: at for at, name in enumerate(_NAMES, 1)}
_MONTHS = {**_SHORT, "sept": 9, **{name: at for at, name in enumerate(_NAMES, 1)}}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
#: Date patterns; the first match counts. A month alone needs a preposition, because of march and may.
_DATES = tuple(
    re.compile(rf"\b{pattern}\b")
    for pattern in (
        rf"{_YEAR}-(?P<month>\d\d)(?:-(?P<day>\d\d))?",
        rf"{_DAY}(?: of)? {_MONTH}(?:,? (?:of )?{_YEAR})?",
        rf"{_MONTH} {_DAY}(?:,? {_YEAR})?",
        rf"{_MONTH},? (?:of )?{_YEAR}",
        rf"(?:in|of|during|since|until|by|this|last|next|early|late|mid) {_MONTH}",
        _YEAR,
    )
)
#: Year, month and day in Chinese, Japanese and Korean.
_NUMBERED = re.compile(
    r"(?<!\d)(?P<year>(?:19|20)\d\d) ?[年년] ?(?:(?P<month>\d{1,2}) ?[月월] ?(?:(?P<day>\d{1,2}) ?[日일])?)?"
)


class Date(NamedTuple):
    """A day, month or year; ``None`` matches any.

    Attributes:
        year: calendar year.
        month: from 1.
        day: day of the month, from 1.
    """

    year: int | None = None
    month: int | None = None
    day: int | None = None


def dates_of(text: str) -> tuple[Date, ...]:
    """Return the distinct dates in a lower-case text."""
    found: dict[Date, None] = {}
    for pattern in (_NUMBERED, *_DATES):

        def take(match: re.Match[str]) -> str:
            parts = {name: value for name, value in match.groupdict().items() if value}
            date = Date(
                year=int(parts["year"]) if "year" in parts else None,
                month=_month(parts["month"]) if "month" in parts else None,
                day=int(parts["day"]) if "day" in parts else None,
            )
            if not (1 <= (date.month or 1) <= 12 and 1 <= (date.day or 1) <= 31):
                return match.group()
            found[date] = None
            return " "

        text = pattern.sub(take, text)
    return tuple(found)


def falls_on(time_ns: NDArray[np.int64], date: Date) -> NDArray[np.bool_]:
    """Return which of (n,) int64 nanoseconds since 1970 fall on a date, in UTC."""
    days = time_ns.view("M8[ns]").astype("M8[D]")
    months = days.astype("M8[M]")
    kept: NDArray[np.bool_] = ~np.isnat(days)
    if date.year is not None:
        kept &= days.astype("M8[Y]") == np.datetime64(date.year - 1970, "Y")
    if date.month is not None:
        kept &= months.view(np.int64) % 12 == date.month - 1
    if date.day is not None:
        kept &= (days - months.astype("M8[D]")).view(np.int64) == date.day - 1
    return kept


def _month(text: str) -> int:
    return int(text) if text.isdecimal() else _MONTHS[text]
