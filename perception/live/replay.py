"""Recorded scans, replayed in real time."""

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

#: Longer pauses in a recording are skipped.
LONGEST_PAUSE_S = 10.0


class Recorded(NamedTuple):
    """A scan of a recording; see :class:`~perception.live.Arrival`."""

    name: str
    cloud: PointCloud
    sensor: str = ""
    pose: ScanPose | None = None


class Replay:
    """Recorded scans as a source.

    Args:
        recorded: yields the scans in order, read on demand, or errors.
        name: name in messages.
        speed: 2 is twice real time; infinity does not wait.
        rate_hz: scan rate for recordings without times.

    Raises:
        ValueError: speed or rate is not positive.
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
            raise ValueError(f"speed must be positive, got {speed}")
        if not rate_hz > 0:
            raise ValueError(f"rate_hz must be positive, got {rate_hz}")
        self.name = name
        self._recorded, self._speed, self._rate_hz = recorded, speed, rate_hz

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Yield scans at their times."""
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
                # A jump of the clock, as between two recordings, is not a pause.
                gap_s = (cloud.timestamp_ns - before_ns) / 1e9
                due_s += (gap_s if 0 <= gap_s <= LONGEST_PAUSE_S else 1 / self._rate_hz) / self._speed
            before_ns = cloud.timestamp_ns
            if stop.wait(max(0.0, due_s - time.monotonic())):
                return
            # If reading is too slow, the replay falls behind instead of catching up.
            due_s = max(due_s, time.monotonic() - 1.0)
            yield Arrival(one.name, position, cloud, time.monotonic(), one.sensor, one.pose)
            position += 1
