"""ISO 8601 as people and programs write it, the same on every Python."""

from __future__ import annotations

import re
from datetime import datetime

_WRITTEN = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<clock>\d\d:\d\d)(?P<seconds>:\d\d(?:[.,](?P<fraction>\d+))?)?"
    r"(?:(?P<utc>[Zz])|(?P<hours>[+-]\d\d):?(?P<minutes>\d\d)?)?",
    re.ASCII,
)


def parse_moment(text: str) -> datetime:
    """A date and time; without a zone where none is written.

    ``datetime.fromisoformat`` of Python 3.10 knows neither ``Z`` nor zones without a colon nor fractions of
    other lengths than three and six digits. What is finer than microseconds is cut off.

    Raises:
        ValueError: no date and time.
        TypeError: no text.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return datetime.fromisoformat(text)
    parts = f"{found['day']}T{found['clock']}{(found['seconds'] or '')[:3]}"
    if found["fraction"] is not None:
        parts += f".{found['fraction'][:6]:0<6}"
    if found["utc"]:
        parts += "+00:00"
    elif found["hours"]:
        parts += f"{found['hours']}:{found['minutes'] or '00'}"
    return datetime.fromisoformat(parts)
