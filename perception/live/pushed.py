"""Scans pushed by a program, such as in the callback of a middleware."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.live.arrivals import Arrival
from perception.live.newest import NewestQueue
from perception.types import PointCloud

_WAIT_S = 0.25


class PushedScans:
    """A source for callbacks: :meth:`put` never waits, and is thread-safe.

    Args:
        name: name in messages, and prefix of scan names.
    """

    lasting = True

    def __init__(self, name: str) -> None:
        self.name = name
        # The reader empties it at once; the run decides which scans to process.
        self._came = NewestQueue[Arrival | DataError](64)
        self._position = 0
        self._counting = threading.Lock()

    def put(self, scan: PointCloud | DataError, *, sensor: str = "", pose: ScanPose | None = None) -> None:
        """Add a scan, or the error of an unusable one; a scan without a time gets the current one."""
        arrived_s = time.monotonic()
        if isinstance(scan, DataError):
            self._came.put(scan)
            return
        cloud = replace(scan, timestamp_ns=time.time_ns()) if scan.timestamp_ns is None else scan
        with self._counting:
            position, self._position = self._position, self._position + 1
        self._came.put(Arrival(f"{self.name}-{position:06d}", position, cloud, arrived_s, sensor, pose))

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Yield the scans in order."""
        while not stop.is_set():
            one = self._came.take(_WAIT_S)
            if one is not None:
                yield one
