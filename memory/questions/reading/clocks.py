"""Spoken clock times, such as *half past eight* or *between 8 and 9 this morning*, as digits."""

from __future__ import annotations

import re

from memory.questions.reading.lexicon import NUMBERS
from memory.questions.reading.times import DATE

_WORDS = ("one", *NUMBERS)
_QUARTERS = {"half past": 30, "quarter past": 15, "quarter to": -15}
_PART = r"(?P<part>(?:in the|this|at) (?:morning|afternoon|evening|night))"


def _clock(end: str) -> str:
    """Return the pattern of a clock time, with the names of its groups ending in ``end``."""
    return (
        rf"(?:(?:a )?(?P<quarter{end}>{'|'.join(_QUARTERS)}) )?(?P<hour{end}>\d{{1,2}}|{'|'.join(_WORDS)})"
        rf"(?::(?P<minute{end}>\d{{2}}))?(?:(?P<half{end}> ?[ap]m)|(?P<exact{end}> o'?clock))?"
    )


_RANGE = re.compile(
    rf"\b(?P<word>between|from) {_clock('1')} (?P<to>and|to|until|till) {_clock('2')}"
    rf"(?: {_PART})?(?![\w:.,])",
    re.IGNORECASE,
)
_SINGLE = re.compile(
    rf"\b(?P<word>(?:at |just |shortly )?(?:about|around|before|after|since|until|till|at)) {_clock('1')}"
    rf"(?: {_PART})?(?=$|[,;] [a-z]| (?:on )?(?:{re.sub(r'[?]P<[a-z_]+>', '?:', DATE)}))",
    re.IGNORECASE,
)
#: *On Thursday morning around eleven*, whose part of the day belongs to the clock time.
_PART_FIRST = re.compile(
    rf"(?P<day>\b(?:{re.sub(r'[?]P<[a-z_]+>', '?:', DATE)})) (?P<part>morning|afternoon|evening|night),? "
    rf"(?P<at>(?:at about|at around|about|around|at)) (?P<hour>\d{{1,2}}|{'|'.join(_WORDS)})(?=$|[,;?])",
    re.IGNORECASE,
)
_DATED = re.compile(rf"\b(?:{DATE})\b", re.IGNORECASE)
_DIGITS = re.compile(
    r"\b(?:\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]m)?|\d{1,2} ?[ap]m|noon|midnight)\b", re.IGNORECASE
)
_SLASHES = re.compile(r"\b(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})\b")
_DAY_FIRST = re.compile(r"\b(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})\b")
#: A day that no word such as *since* belongs to.
_LONE_DAY = re.compile(
    rf"(?<!since )(?<!before )(?<!after )(?<!until )(?<!till )(?<!from )(?<!between )(?<!than )"
    rf"\b(?:on )?(?P<day>{DATE})\b,?",
    re.IGNORECASE,
)
_JOINED = re.compile(
    rf"(?:{DATE}),? ?(?:at |T)?{_DIGITS.pattern}|{_DIGITS.pattern},? (?:on )?(?:{DATE})", re.IGNORECASE
)


def with_clocks(words: str) -> str:
    """Return a question with its spoken clock times in digits.

    A bare number is an hour after a word such as *at*, at the end or before a day. In a range it is one if a
    day, a part of the day or another clock time is there. So *between 8 and 9* alone stays as it is.
    """
    words = _DAY_FIRST.sub(_iso, _SLASHES.sub(_iso, words))
    words = _PART_FIRST.sub(r"\g<day> \g<at> \g<hour> in the \g<part>", words)
    return _dated(_SINGLE.sub(_written, _RANGE.sub(_written, words)))


def _iso(match: re.Match[str]) -> str:
    return f"{match['year']}-{int(match['month']):02d}-{int(match['day']):02d}"


def _dated(words: str) -> str:
    """Return a question with its only day behind its clock time: *on Monday* and *at 9:00* are one time."""
    days, clocks = list(_LONE_DAY.finditer(words)), list(_DIGITS.finditer(words))
    if len(days) != 1 or not clocks or _JOINED.search(words):
        return words
    day, (start, end), last = days[0]["day"], days[0].span(), clocks[-1].end()
    if start >= last:
        return f"{words[:last]} {day}{words[last:start]}{words[end:]}"
    return f"{words[:start]}{words[end:last]} {day}{words[last:]}"


def _written(match: re.Match[str]) -> str:
    groups = match.groupdict()
    ends = ("1", "2") if "hour2" in groups else ("1",)
    part = (groups["part"] or "").lower()
    named = any(groups[f"{kind}{end}"] for kind in ("quarter", "half", "exact", "minute") for end in ends)
    if len(ends) == 2 and not (part or named or _DATED.search(match.string)):
        return match[0]
    half = next((groups[f"half{end}"] for end in reversed(ends) if groups[f"half{end}"]), "").strip().lower()
    clocks = [_digits(groups, end, groups[f"half{end}"] or half, part) for end in ends]
    if None in clocks:
        return match[0]
    day = " today" if part.startswith("this") else ""
    joined = f" {groups.get('to')} ".join(clock for clock in clocks if clock)
    return f"{groups['word']} {joined}{day}"


def _digits(groups: dict[str, str | None], end: str, half: str, part: str) -> str | None:
    """Return a clock time as hours and minutes; ``None`` if there is no such time."""
    hour_words = (groups[f"hour{end}"] or "").lower()
    hour = int(hour_words) if hour_words.isdecimal() else _WORDS.index(hour_words) + 1
    minute = int(groups[f"minute{end}"] or 0)
    if hour > 24 or minute > 59:
        return None
    late = half.strip().lower() == "pm" or part.endswith(("afternoon", "evening"))
    late = late or (part.endswith("night") and hour >= 6)
    if half or part:
        hour = hour % 12 + 12 * late if hour <= 12 else hour
    total = (hour * 60 + minute + _QUARTERS.get((groups[f"quarter{end}"] or "").lower(), 0)) % (24 * 60)
    return f"{total // 60:02d}:{total % 60:02d}"
