"""Times of scans, from a file with one time per line or from scan names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.text import parse_count, read_rows
from sparse_core.common.moments import parse_moment

_SECOND_NS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Times beyond this (about the year 2262) do not fit into 64 bits of nanoseconds.
_MOST_NS = 2**63 - 1
#: ``1305031102.175304``: seconds since the epoch with a fraction.
_SECONDS = re.compile(r"(?<!\d)([1-9]\d{8,9})[._](\d{1,9})(?!\d)")
#: ``1532402927647951``: milliseconds, microseconds or nanoseconds since the epoch, by number of digits.
#: Argoverse 2 has nanoseconds since the start of GPS time, in 18 digits.
_WHOLE = re.compile(r"(?<!\d)([1-9]\d{12}|[1-9]\d{15}|[1-9]\d{17,18})(?!\d)")
#: Times before 2000 count from the start of a recording, a week or a clock.
_EARLIEST_NS, _LATEST_NS = 946_684_800 * _SECOND_NS, 4_102_444_800 * _SECOND_NS
#: Nanoseconds per unit, for the units in which drivers write point times.
_UNITS_NS = (10**9, 10**6, 10**3, 1)
#: Lower-case names of fields with the time of a point.
_POINT_TIMES = ("timestamp", "time", "t")
#: Files next to a folder of scans, as in KITTI.
_BESIDE = ("timestamps.txt", "times.txt")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?")


def parse_seconds(place: str, name: str, word: str) -> int:
    """Parse a time in seconds as nanoseconds, without rounding.

    Raises:
        DataError: the word is not a finite number, or too large; ``place`` and ``name`` go into the message.
    """
    try:
        value = Decimal(word) * _SECOND_NS
        if not value.is_finite() or abs(value) > _MOST_NS:
            raise InvalidOperation
    except InvalidOperation as error:
        raise DataError(
            f"{place}: field {name} is {word[:80]!r}; expected seconds, or a date and time such as"
            " 2026-01-02 10:00:00.123"
        ) from error
    return round(value)


def time_in_name(name: str) -> int | None:
    """Return the time in a scan's name, nanoseconds since the epoch, or None.

    Names may hold seconds with a fraction, or milli-, micro- or nanoseconds, recognised by their digits.
    """
    if found := _SECONDS.search(name):
        return int(found.group(1)) * _SECOND_NS + int(found.group(2).ljust(9, "0"))
    if found := _WHOLE.search(name):
        digits = found.group(1)
        return int(digits if len(digits) == 18 else digits.ljust(19, "0"))
    return None


def is_date(time_ns: int) -> bool:
    """Return True if a time may be a date, and does not count from the start of a recording."""
    return _EARLIEST_NS <= time_ns < _LATEST_NS


def parse_date(text: str) -> int:
    """Parse an ISO 8601 date and time, UTC by default, as nanoseconds since the epoch.

    Raises:
        ValueError: the text is not a date.
    """
    try:
        when = parse_moment(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:80]!r} is not a date and time. Write ISO 8601, such as 2026-01-02T10:00:00Z."
        ) from error
    since = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + since.microseconds * 1000


def first_point_time(fields: Mapping[str, npt.NDArray[Any]]) -> int | None:
    """Return the time of the first point, nanoseconds since the epoch, or None without a field of dates.

    The unit is recognised by the size of the values. Times since the start of the scan do not count, and
    numbers of four bytes are too coarse.
    """
    for name in _POINT_TIMES:
        if name not in fields or fields[name].dtype.itemsize < 8:
            continue
        values = fields[name][np.isfinite(fields[name])]
        for unit_ns in _UNITS_NS:
            dates = values[(values >= _EARLIEST_NS // unit_ns) & (values < _LATEST_NS // unit_ns)]
            if 2 * len(dates) > len(values):
                first = dates.min()
                # float64 seconds since the epoch resolve about a microsecond.
                return int(first) * unit_ns if unit_ns < _SECOND_NS else round(float(first) * 1e6) * 1000
    return None


def is_numbered(scan: Path) -> bool:
    """Return True if the name of a scan is a number, as in KITTI."""
    return parse_count(scan.name.split(".")[0]) is not None


def find_times_file(scans: Path) -> Path | None:
    """Return KITTI's file of times next to a folder of numbered scans, or None."""
    folder = scans.absolute().parent
    return next((path for name in _BESIDE if (path := folder / name).is_file()), None)


class ScanTimes:
    """Times of scans from a file with one time per line: seconds, or date and time (UTC) as in KITTI.

    An empty line stands for a scan without a time. Comments (``#``) do not count.

    Args:
        path: the file.

    Raises:
        DataError: the file or a line of it is invalid.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[int] = []
        self._times: list[int | None] = []
        for number, text in read_rows(path, "one time per line"):
            self._lines.append(number)
            self._times.append(_parse(f"{path}: line {number}", text) if text else None)

    def find(self, name: str, position: int) -> int | None:
        """Return the time of a scan, nanoseconds since the epoch, or None if its line is empty.

        Args:
            name: scan name, without folder and suffix; a number names the line.
            position: index among the scans, from 0, for other names.

        Raises:
            DataError: the file has too few lines.
        """
        row = self._row(name, position)
        if row >= len(self._times):
            raise DataError(
                f"{self.path}: scan {name!r} needs time {row + 1}, but the file has {len(self._times)}. Write"
                " one line per scan."
            )
        return self._times[row]

    def line(self, name: str, position: int) -> int:
        """Return the number, from 1, of the line that :meth:`find` reads."""
        return self._lines[self._row(name, position)]

    def _row(self, name: str, position: int) -> int:
        count = parse_count(name)
        return position if count is None else count


def _parse(place: str, text: str) -> int:
    found = _DATE.fullmatch(text)
    if found is None:
        return parse_seconds(place, "time", text)
    try:
        moment = datetime.fromisoformat(f"{found.group(1)}T{found.group(2)}").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise DataError(
            f"{place}: {text[:80]!r} is not a valid date and time ({error}). Correct the line."
        ) from error
    return int(moment.timestamp()) * _SECOND_NS + int((found.group(3) or "0").ljust(9, "0"))
