"""Recorded scans at the pace of their own times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.live.arrivals import Arrival
from perception.types import PointCloud

#: A longer pause in a recording is passed over.
LONGEST_PAUSE_S = 10.0


class Recorded(NamedTuple):
    """A scan of a recording; see :class:`~perception.live.Arrival`."""

    name: str
    cloud: PointCloud
    sensor: str = ""
    pose: ScanPose | None = None


class Replay:
    """Scans as a sensor would send them again.

    Args:
        recorded: gives the scans in their order, read as they are asked for, or errors in their place.
        name: in messages.
        speed: 2 is twice as fast; infinity does not wait.
        rate_hz: scans a second where the recording has no times; they are given times then.

    Raises:
        ValueError: speed or rate is not above 0.
    """

    lasting = False

    def __init__(
        self,
        recorded: Callable[[], Iterator[Recorded | DataError]],
        *,
        name: str,
        speed: float = 1.0,
        rate_hz: float = 10.0,
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, got {speed}")
        if not rate_hz > 0:
            raise ValueError(f"rate_hz must be above 0, got {rate_hz}")
        self.name = name
        self._recorded, self._speed, self._rate_hz = recorded, speed, rate_hz

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """The scans, each when it is due."""
        began_ns, due_s, before_ns, position = time.time_ns(), time.monotonic(), None, 0
        for one in self._recorded():
            if stop.is_set():
                return
            if isinstance(one, DataError):
                yield one
                continue
            step_ns = round(position * 1e9 / self._rate_hz)
            cloud = one.cloud
            if cloud.timestamp_ns is None:
                cloud = replace(cloud, timestamp_ns=began_ns + step_ns)
            assert cloud.timestamp_ns is not None
            if before_ns is not None:
                # A jump of the clock, as between two recordings, is no pause.
                gap_s = (cloud.timestamp_ns - before_ns) / 1e9
                due_s += (gap_s if 0 <= gap_s <= LONGEST_PAUSE_S else 1 / self._rate_hz) / self._speed
            before_ns = cloud.timestamp_ns
            if stop.wait(max(0.0, due_s - time.monotonic())):
                return
            # A recording that cannot be read as fast as it was made comes later from there on.
            due_s = max(due_s, time.monotonic() - 1.0)
            yield Arrival(one.name, position, cloud, time.monotonic(), one.sensor, one.pose)
            position += 1
