"""Times in English, such as this morning, yesterday at 9:00, the last two hours, on Tuesday.

They are relative to a given ``now``. Days and clock times are UTC.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from memory.exchange.times import parse_time

_SECOND = 10**9
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
#: Nanoseconds of each unit of time.
TIME_UNITS = {
    "second": _SECOND, "sec": _SECOND, "minute": 60 * _SECOND, "min": 60 * _SECOND, "hour": _HOUR,
    "day": _DAY, "week": 7 * _DAY, "month": 30 * _DAY, "year": 365 * _DAY,
}  # fmt: skip
#: Numbers in words.
COUNTS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "twelve": 12, "twenty": 20, "thirty": 30, "few": 3, "couple of": 2, "half an": 0.5,
}  # fmt: skip
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
_ABBREVIATED = "jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: First and last hour of a part of the day. The night ends the next morning.
_PARTS = {"morning": (5, 12), "noon": (11, 13), "afternoon": (12, 18), "evening": (18, 22), "night": (22, 29)}
#: Nanoseconds before now.
_LATELY = {"just now": 600 * _SECOND, "a moment ago": 600 * _SECOND, "recently": _DAY, "lately": _DAY}
_LATEST = 2**63 - 1
_TOO_FAR = "the time is out of range. Use a year from 1678 to 2261"


class Span(NamedTuple):
    """First and last nanosecond."""

    first: int
    last: int


def _either(words: object) -> str:
    return "|".join(words)  # type: ignore[arg-type]


_AMOUNT = rf"(?P<count>\d{{1,6}}|{_either(COUNTS)}) ?(?P<unit>{_either(TIME_UNITS)})s?"
_ISO = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?(?:Z|[+-]\d{2}:\d{2})?"
_ISO = rf"{_ISO}(?! at \d| in the)|\d{{10,19}}|now"
_MONTH = rf"(?:{_either(_MONTHS)}|(?:{_ABBREVIATED})\b\.?)"
_MONTH_DAY = (
    rf"{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?"
)
#: Pattern of a day.
DATE = (
    rf"(?:{_either(_WEEKDAYS)}),? (?:the )?(?:{_MONTH_DAY}|\d{{1,2}}(?:st|nd|rd|th))|{_MONTH_DAY}|"
    r"the \d{1,2}(?:st|nd|rd|th)(?! \w+ (?:time|one))|"
    r"today|(?:the )?day before yesterday|yesterday|\d{4}-\d{2}-\d{2}"
    rf"|(?:last |this )?(?:{_either(_WEEKDAYS)})"
    r"|(?:on |last |this )(?:mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)(?!\w)"
)
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]m)?|\d{1,2} ?[ap]m|midnight|noon|\d{1,2} o'clock"
#: Pattern of a time phrase, the longest alternatives first.
PHRASE = (
    rf"(?P<iso>{_ISO})"
    rf"|(?P<day>{DATE})(?:(?: (?:in the )?(?P<part_clock>{_either(_PARTS)}))?,? (?:at )?"
    rf"(?P<clock>{_CLOCK})| (?:in the )?(?P<part>{_either(_PARTS)}))"
    rf"|(?P<clock_first>{_CLOCK}),? (?:on )?(?P<day_last>{DATE})"
    rf"|(?:the )?(?P<part_first>{_either(_PARTS)})(?: of)? (?P<day_of>{DATE})"
    rf"|this (?P<part_now>{_either(_PARTS)})|(?P<tonight>tonight|last night)|(?P<lately>{_either(_LATELY)})"
    r"|(?:in|during|over) the (?P<part_alone>morning|afternoon|evening|night)"
    r"(?=$|[,;]| (?:in|on|at|near|by)\b)"
    r"|(?P<calendar>(?:this|last) (?:week(?:end)?|month|year)|the weekend)"
    rf"|(?:the )?(?:last|past) {_AMOUNT}|(?:the )?(?:last|past) (?P<single>{_either(TIME_UNITS)})"
    rf"|(?:a )?{_AMOUNT.replace('?P<', '?P<ago_')} ago"
    rf"|(?P<day_alone>{DATE})|(?P<clock_alone>{_CLOCK})"
)
_WHOLE = re.compile(PHRASE, re.IGNORECASE)


def span_of(phrase: str, now_ns: int) -> Span:
    """Return the time range of a phrase.

    A weekday is the latest one, today included; ``last Tuesday`` is the latest before today. ``last week`` is
    the one from Monday to Sunday before this one, ``the last week`` are the last seven days. A clock time or
    a part of a day without the day is the latest one. A clock time lasts a minute, or a second if it has
    seconds. Morning is 5 to 12 h, afternoon until 18 h, evening until 22 h, night until 5 h.

    Raises:
        ValueError: the phrase is not a known time.
    """
    words = " ".join(phrase.lower().split())
    found = _WHOLE.fullmatch(words)
    if found is None:
        raise ValueError(
            f"{phrase!r} is not a time. Use for example 'yesterday', '2 hours ago' or 2026-01-31"
        )
    try:
        return _span(words, found, now_ns)
    except OverflowError as error:
        raise ValueError(_TOO_FAR) from error


def _span(words: str, found: re.Match[str], now_ns: int) -> Span:
    today = now_ns - now_ns % _DAY
    date = found["day"] or found["day_last"] or found["day_of"] or found["day_alone"]
    clock = found["clock"] or found["clock_first"] or found["clock_alone"]
    part = found["part"] or found["part_first"] or found["part_now"]
    if found["iso"]:
        text = found["iso"].upper().replace(" ", "T")
        return Span(now_ns, now_ns) if text == "NOW" else Span(parse_time(text), parse_time(text, end=True))
    if clock:
        time_of_day = _clock(clock)
        if found["part_clock"] in ("afternoon", "evening") and time_of_day < 12 * _HOUR:
            time_of_day += 12 * _HOUR  # Yesterday evening at 7:30.
        start = (today if date is None else _day(date, today)) + time_of_day
        if date is None and start > now_ns:
            start -= _DAY
        return _within(start, start + (1 if clock.count(":") == 2 else 60) * _SECOND - 1)
    if part:
        first, last = _PARTS[part]
        start = today if date is None else _day(date, today)
        return _within(start + first * _HOUR, start + last * _HOUR - 1)
    if found["tonight"]:
        start = today - _DAY if found["tonight"] == "last night" else today
        return _within(start + 18 * _HOUR, start + 29 * _HOUR - 1)
    if date:
        start = _day(date, today)
        return _within(start, start + _DAY - 1)
    if found["lately"]:
        return _within(now_ns - _LATELY[found["lately"]], now_ns)
    if found["part_alone"]:
        first, last = _PARTS[found["part_alone"]]
        start = today if today + first * _HOUR <= now_ns else today - _DAY
        return _within(start + first * _HOUR, start + last * _HOUR - 1)
    if found["calendar"]:
        return _calendar(words, today, now_ns)
    if found["single"]:
        return _within(now_ns - TIME_UNITS[found["single"]], now_ns)
    if found["ago_count"]:
        unit = TIME_UNITS[found["ago_unit"]]
        at = now_ns - _amount(found["ago_count"], unit)
        return _within(at - unit // 2, at + unit // 2)
    return _within(now_ns - _amount(found["count"], TIME_UNITS[found["unit"]]), now_ns)


def since_of(phrase: str, now_ns: int) -> int:
    """Return the nanosecond at which ``since PHRASE`` starts.

    Raises:
        ValueError: the phrase is not a known time.
    """
    first, last = span_of(phrase, now_ns)
    return (first + last) // 2 if phrase.strip().lower().endswith(" ago") else first


def is_clock(phrase: str) -> bool:
    """True if a phrase is a clock time without a day."""
    found = _WHOLE.fullmatch(phrase.strip())
    return found is not None and found["clock_alone"] is not None


def until_now(first_ns: int) -> Span:
    """Return the range from a time to the end of time."""
    return Span(first_ns, _LATEST)


def _day(words: str, today: int) -> int:
    """Return the first nanosecond of a day."""
    weekday, _, rest = words.partition(" ")
    if weekday.strip(",") in _WEEKDAYS and rest:
        start = _day(rest if "the " in rest or _month_of(rest) else f"the {rest}", today)
        if (start // _DAY + 3) % 7 != _WEEKDAYS.index(weekday.strip(",")):
            raise ValueError(f"'{rest}' is no {weekday.strip(',').capitalize()}. Ask for one of the two")
        return start
    if words == "today":
        return today
    if words == "yesterday":
        return today - _DAY
    if words.endswith("before yesterday"):
        return today - 2 * _DAY
    month = _month_of(words)
    if month is not None:
        return _month_day(words, month, today)
    if words[0].isdecimal():
        return parse_time(words)
    if words.startswith("the ") and words[4].isdecimal():
        return _day_of_month(int(words[4:-2]), today)
    named = next(number for number, name in enumerate(_WEEKDAYS) if name.startswith(words.split()[-1][:3]))
    back = ((today // _DAY + 3) % 7 - named) % 7
    return today - (7 if back == 0 and words.startswith("last") else back) * _DAY


def _month_of(words: str) -> int | None:
    """Return the number of the month in the words of a day, or ``None``."""
    return next(
        (number for number, name in enumerate(_MONTHS, 1) if re.search(rf"\b{name[:3]}", words)), None
    )


def _calendar(words: str, today: int, now_ns: int) -> Span:
    """Return this or the last week, weekend, month or year of the calendar."""
    unit, last = words.split()[1], words.startswith("last")
    if unit.startswith("week"):
        monday = today - (today // _DAY + 3) % 7 * _DAY
        start = monday + (5 * _DAY if unit == "weekend" else 0)
        if last or start > now_ns:
            start -= 7 * _DAY
        end = monday + (0 if start < monday else 7 * _DAY)
        return _within(start, min(end - 1, now_ns))
    year, month, *_ = time.gmtime(today // _SECOND)
    months = 12 if unit == "year" else 1
    first = year * 12 + (0 if unit == "year" else month - 1)
    starts = [parse_time(f"{at // 12:04d}-{at % 12 + 1:02d}-01") for at in (first - months, first)]
    return _within(starts[0], starts[1] - 1) if last else _within(starts[1], now_ns)


def _day_of_month(day: int, today: int) -> int:
    """Return the first nanosecond of the latest such day of a month, today included."""
    if not 1 <= day <= 31:
        raise ValueError(f"'{day}' is no day of a month. Use for example 'the 15th'")
    start = today
    while time.gmtime(start // _SECOND).tm_mday != day:
        start -= _DAY
    return start


def _month_day(words: str, month: int, today: int) -> int:
    """Return the first nanosecond of a day such as ``march 10``, the latest one if no year is given."""
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    day = numbers[0]
    if len(numbers) > 1:
        return parse_time(f"{numbers[1]:04d}-{month:02d}-{day:02d}")
    this_year = time.gmtime(today // _SECOND).tm_year
    start = parse_time(f"{this_year:04d}-{month:02d}-{day:02d}")
    return start if start <= today else parse_time(f"{this_year - 1:04d}-{month:02d}-{day:02d}")


def _clock(words: str) -> int:
    """Return the nanoseconds after midnight."""
    if words in ("midnight", "noon"):
        return 12 * _HOUR if words == "noon" else 0
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    hour, minute, second = (*numbers, 0, 0)[:3]
    half = words[-2:] in ("am", "pm")
    if (half and not 1 <= hour <= 12) or hour > 24 or minute > 59 or second > 59:
        raise ValueError(f"'{words}' is not a time of day. Use for example '9:30' or '5 pm'")
    if half:
        hour = hour % 12 + (12 if words.endswith("pm") else 0)
    return (hour * 3600 + minute * 60 + second) * _SECOND


def _amount(word: str, unit: int) -> int:
    return int(word) * unit if word.isdecimal() else round(COUNTS[word] * unit)


def _within(first: int, last: int) -> Span:
    if first < -(2**63) or last >= 2**63:
        raise ValueError(_TOO_FAR)
    return Span(first, last)
