"""Times as text."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta, timezone

from sparse_core.common.moments import parse_moment

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_FRACTION = re.compile(r"(?P<before>.*\d{2}:\d{2}:\d{2})[.,](?P<digits>\d{1,9})(?P<zone>[^\d].*)?")


def parse_time(text: str, *, end: bool = False) -> int:
    """Return nanoseconds since the epoch.

    Args:
        text: an integer of nanoseconds, ``now``, or ISO 8601 such as ``2026-01-02``, ``2026-01-02T10:00`` or
            ``2026-01-02T10:00:00.000000001+02:00``; UTC unless a zone is given.
        end: return the last nanosecond of a date without a time, instead of its first.

    Raises:
        ValueError: another format, or outside 64 bits.
    """
    text = text.strip()
    if text == "now":
        return time.time_ns()
    try:
        found = int(text) if re.fullmatch(r"[+-]?\d+", text) else _parse_iso(text, end=end)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is not a time. Use ISO 8601, such as 2026-01-02T10:00:00Z, or nanoseconds"
        ) from error
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{text!r} does not fit into 64 bits of nanoseconds. Use a year from 1678 to 2262")
    return found


def _parse_iso(text: str, *, end: bool) -> int:
    if _DAY.fullmatch(text):
        days = (date.fromisoformat(text) - _EPOCH.date()).days
        return (days + 1) * 86_400 * 10**9 - 1 if end else days * 86_400 * 10**9
    fraction = 0
    parts = _FRACTION.fullmatch(text)
    if parts is not None:
        # datetime holds microseconds only.
        fraction = int(parts["digits"].ljust(9, "0"))
        text = parts["before"] + (parts["zone"] or "")
    moment = parse_moment(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 + fraction


def format_time(time_ns: int, *, digits: int | None = None) -> str:
    """Return ISO 8601 in UTC, which :func:`parse_time` reads.

    Args:
        time_ns: nanoseconds since the epoch.
        digits: digits of the second's fraction; by default all, without trailing zeros.
    """
    seconds, fraction = divmod(int(time_ns), 10**9)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    part = f"{fraction:09d}"
    part = part.rstrip("0") if digits is None else part[:digits]
    return f"{text}.{part}Z" if part else f"{text}Z"
