"""Assumed dates for scans without dates, which a memory needs to order observations.

Scans without times, or with seconds since the start of the recording, are dated from ``--start``, or from the
modification time of the first file of the folder or recording. That time is the same in every run and keeps
recordings in order. Records have it as ``assumed_ns``; ``timestamp_ns`` keeps only known times.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from perception.cli.scans.scan import Scan
from perception.io.times import is_date, parse_date
from sparse_core.common.console import LOG

#: Assumed scan rate.
DEFAULT_RATE_HZ = 10.0


def add_date_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--start``."""
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="date and time of the first scan, if scans have no dates: ISO 8601, UTC by default (default:"
        " modification time of the first file)",
    )


class ScanDates:
    """Assumed dates of scans, with one warning; raises ``ValueError`` if ``--start`` is not a date."""

    def __init__(self, options: argparse.Namespace) -> None:
        start = getattr(options, "start", None)
        self._start_ns = None if start is None else parse_date(start)
        self._rate_hz = getattr(options, "rate_hz", None) or DEFAULT_RATE_HZ
        self._changed_ns: dict[Path, int | None] = {}
        self._warned = False

    def fields(self, scan: Scan, time_ns: int | None) -> dict[str, Any]:
        """Return ``assumed_ns`` and its origin; nothing for a scan with a date.

        Args:
            scan: the scan.
            time_ns: time of the scan or its pose, which may count from the start of the recording.
        """
        if time_ns is not None and is_date(time_ns):
            return {}
        start_ns = self._changed(scan.first) if self._start_ns is None else self._start_ns
        if start_ns is None:
            return {}
        passed_ns = round(scan.place * 1e9 / self._rate_hz) if time_ns is None else time_ns
        source = "start" if self._start_ns is not None else "file"
        return {"assumed_ns": start_ns + passed_ns, "assumed_from": source}

    def warn(self, record: dict[str, Any]) -> None:
        """Warn about the first record whose date was assumed without ``--start``."""
        known = known_time(record.get("timestamp_ns"), record.get("pose", {}).get("time_ns"))
        if self._warned or record.get("assumed_from") == "start" or (known is not None and is_date(known)):
            return
        self._warned = True
        assumed = record.get("assumed_ns")
        problem = "no times" if known is None else f"relative times, not dates (first: {known / 1e9:g} s)"
        assumption = (
            "memories get the time of detection"
            if assumed is None
            else f"{record['frame']} is dated {_iso(assumed)}, the modification time of the first file"
        )
        LOG.warning("scans have %s: %s. Add --start TIME or --times FILE.", problem, assumption)

    def _changed(self, path: Path | None) -> int | None:
        if path is None:
            return None
        if path not in self._changed_ns:
            try:
                self._changed_ns[path] = path.stat().st_mtime_ns
            except OSError:
                # An address has no local file.
                self._changed_ns[path] = None
        return self._changed_ns[path]


def known_time(*times: int | None) -> int | None:
    """Return the first time that is a date, else the first time, else None."""
    there = [one for one in times if one is not None]
    return next((one for one in there if is_date(one)), there[0] if there else None)


def _iso(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
