"""ISO 8601 dates and times, parsed equally on every Python version."""

from __future__ import annotations

import re
from datetime import datetime

_ISO_8601 = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<clock>\d\d:\d\d)(?P<seconds>:\d\d(?:[.,](?P<fraction>\d+))?)?"
    r"(?:(?P<utc>[Zz])|(?P<hours>[+-]\d\d):?(?P<minutes>\d\d)?)?",
    re.ASCII,
)


def parse_moment(text: str) -> datetime:
    """Parse a date and time; the result has a zone only if the text has one.

    ``datetime.fromisoformat`` of Python 3.10 rejects ``Z``, zones without a colon, and fractions without
    exactly three or six digits. Digits beyond microseconds are dropped.

    Raises:
        ValueError: not a date and time.
        TypeError: not a string.
    """
    found = _ISO_8601.fullmatch(text)
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
