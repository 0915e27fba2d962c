"""Dates for scans that have none: a memory orders what it is given by date, and "what changed?" needs one.

A scan whose files tell no time, or seconds since the start of its recording, gets an assumed date. It is
counted from ``--start``, else from when the first file of its folder (or its recording) was last changed.
That is the one date in the data: copies that keep times have it, two runs give the same, and recordings of
different days stay in order. It is written as ``assumed_ns``; ``timestamp_ns`` stays what is known.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from perception.cli.console import REMARKS
from perception.cli.scans.scan import Scan
from perception.io.times import is_date, parse_date

#: Scans a second where nobody says otherwise.
DEFAULT_RATE_HZ = 10.0


def add_date_options(parser: argparse.ArgumentParser) -> None:
    """``--start``."""
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="date of the first scan, for scans without dates: ISO 8601, UTC without a zone (default: when"
        " the first file was last changed)",
    )


class ScanDates:
    """Assumes dates, and says so once.

    Args:
        options: of the command line.

    Raises:
        ValueError: ``--start`` is no date.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        start = getattr(options, "start", None)
        self._start_ns = None if start is None else parse_date(start)
        self._rate_hz = getattr(options, "rate_hz", None) or DEFAULT_RATE_HZ
        self._changed_ns: dict[Path, int | None] = {}
        self._told = False

    def fields(self, scan: Scan, time_ns: int | None) -> dict[str, Any]:
        """``assumed_ns`` and where it is from; nothing for a scan that has a date.

        Args:
            scan: of which a record is written.
            time_ns: its own time, or that of its pose, which may count from the start of its recording.
        """
        if time_ns is not None and is_date(time_ns):
            return {}
        start_ns = self._changed(scan.first) if self._start_ns is None else self._start_ns
        if start_ns is None:
            return {}
        passed_ns = round(scan.place * 1e9 / self._rate_hz) if time_ns is None else time_ns
        source = "start" if self._start_ns is not None else "file"
        return {"assumed_ns": start_ns + passed_ns, "assumed_from": source}

    def tell(self, record: dict[str, Any]) -> None:
        """Warn of the first record whose date is unknown and was not said with ``--start``."""
        known = known_time(record.get("timestamp_ns"), record.get("pose", {}).get("time_ns"))
        if self._told or record.get("assumed_from") == "start" or (known is not None and is_date(known)):
            return
        self._told = True
        assumed = record.get("assumed_ns")
        have = "no times" if known is None else f"times that are no dates ({known / 1e9:g} s)"
        taken = (
            "memories will be dated by when they were detected"
            if assumed is None
            else f"{record['frame']} is dated {_written(assumed)}, by when the first file was last changed"
        )
        REMARKS.print(
            f"warning: the scans have {have}: {taken}; say --start TIME, or --times FILE",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def _changed(self, path: Path | None) -> int | None:
        if path is None:
            return None
        if path not in self._changed_ns:
            try:
                self._changed_ns[path] = path.stat().st_mtime_ns
            except OSError:
                # An address: it has no file here.
                self._changed_ns[path] = None
        return self._changed_ns[path]


def known_time(*times: int | None) -> int | None:
    """The first that is a date, else the first that is there; None without one."""
    there = [one for one in times if one is not None]
    return next((one for one in there if is_date(one)), there[0] if there else None)


def _written(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
