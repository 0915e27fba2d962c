"""When scans were taken: out of a file with a time a line, or out of the scan's own name."""

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
#: ``1532402927647951``: whole milliseconds, microseconds or nanoseconds since the epoch, by their digits.
#: Argoverse 2 counts nanoseconds from the first days of GPS, in 18 digits.
_WHOLE = re.compile(r"(?<!\d)([1-9]\d{12}|[1-9]\d{15}|[1-9]\d{17,18})(?!\d)")
#: No scan of a LiDAR is from before 2000: such times count from the start of a recording, a week or a clock.
_EARLIEST_NS, _LATEST_NS = 946_684_800 * _SECOND_NS, 4_102_444_800 * _SECOND_NS
#: Nanoseconds in the units in which drivers write the time of a point.
_UNITS_NS = (10**9, 10**6, 10**3, 1)
#: Fields of a point's time, lower case.
_POINT_TIMES = ("timestamp", "time", "t")
#: Beside a folder of scans, as KITTI has them.
_BESIDE = ("timestamps.txt", "times.txt")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?")


def parse_seconds(place: str, name: str, word: str) -> int:
    """Nanoseconds of a time in seconds, exactly as it is written.

    Args:
        place: file and line, for the message.
        name: the field, for the message.
        word: the text.

    Raises:
        DataError: the word is no finite number, or too large.
    """
    try:
        value = Decimal(word) * _SECOND_NS
        if not value.is_finite() or abs(value) > _MOST_NS:
            raise InvalidOperation
    except InvalidOperation as error:
        raise DataError(f"{place}: field {name} is {word[:80]!r}; expected a time in seconds") from error
    return round(value)


def said_time(name: str) -> int | None:
    """Nanoseconds since the epoch in the name of a scan; None where it tells no time.

    Seconds with a fraction, or whole milli-, micro- or nanoseconds, of which only the digits say which.
    """
    if found := _SECONDS.search(name):
        return int(found.group(1)) * _SECOND_NS + int(found.group(2).ljust(9, "0"))
    if found := _WHOLE.search(name):
        digits = found.group(1)
        return int(digits if len(digits) == 18 else digits.ljust(19, "0"))
    return None


def is_date(time_ns: int) -> bool:
    """True if a time may be the date of a scan, and does not count from the start of a recording."""
    return _EARLIEST_NS <= time_ns < _LATEST_NS


def parse_date(text: str) -> int:
    """Nanoseconds since the epoch of an ISO 8601 date and time; UTC without a zone.

    Raises:
        ValueError: it is none.
    """
    try:
        when = parse_moment(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:80]!r} is no time: expected ISO 8601, such as 2026-01-02T10:00:00Z"
        ) from error
    since = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + since.microseconds * 1000


def first_point_time(fields: Mapping[str, npt.NDArray[Any]]) -> int | None:
    """Nanoseconds since the epoch of the first point, by a field with the time of each; None without one.

    Seconds, milli-, micro- and nanoseconds are told apart by their size. Times since the start of the scan
    are no time of it, and numbers of four bytes cannot hold one.

    Args:
        fields: lower-case name to (N,) values.
    """
    for name in _POINT_TIMES:
        if name not in fields or fields[name].dtype.itemsize < 8:
            continue
        values = fields[name][np.isfinite(fields[name])]
        for unit_ns in _UNITS_NS:
            dates = values[(values >= _EARLIEST_NS // unit_ns) & (values < _LATEST_NS // unit_ns)]
            if 2 * len(dates) > len(values):
                first = dates.min()
                # Fractions of float64 seconds are no finer than a microsecond.
                return int(first) * unit_ns if unit_ns < _SECOND_NS else round(float(first) * 1e6) * 1000
    return None


def find_times_beside(scan: Path) -> Path | None:
    """The file of times beside the folder of a scan that is named by its number, as KITTI has it; or None."""
    if parse_count(scan.name.split(".")[0]) is None:
        return None
    folder = scan.absolute().parent.parent
    return next((path for name in _BESIDE if (path := folder / name).is_file()), None)


class ScanTimes:
    """A time a line: seconds, or a date and time of UTC as KITTI's ``timestamps.txt`` has it.

    The scan of an empty line has no time; comments (``#``) are no lines.

    Args:
        path: of the file.

    Raises:
        DataError: the file cannot be read, or a line of it; names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[int] = []
        self._times: list[int | None] = []
        for number, text in read_rows(path, "a time a line"):
            self._lines.append(number)
            self._times.append(_parse(f"{path}: line {number}", text) if text else None)

    def find(self, name: str, position: int) -> int | None:
        """Nanoseconds since the epoch of a scan: of the line of its number, or else of its place.

        Args:
            name: of the scan, without folder and suffix.
            position: its place among the scans, from 0.

        Returns:
            The time; None where the line is empty.

        Raises:
            DataError: there is no such line.
        """
        row = self._row(name, position)
        if row >= len(self._times):
            raise DataError(
                f"{self.path}: {len(self._times)} times, none in line {row} (from 0) for scan {name!r};"
                " write a line for each scan"
            )
        return self._times[row]

    def line(self, name: str, position: int) -> int:
        """Number of the line, from 1, that :meth:`find` takes the time from."""
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
        raise DataError(f"{place}: {text[:80]!r} is no date and time ({error})") from error
    return int(moment.timestamp()) * _SECOND_NS + int((found.group(3) or "0").ljust(9, "0"))
