"""The protocol of live sources of scans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.types import PointCloud


class Arrival(NamedTuple):
    """A scan that has arrived.

    Attributes:
        name: name of its frame in records.
        position: index among the scans of its source, from 0.
        cloud: points in the LiDAR frame, with a time.
        arrived_s: ``time.monotonic()`` on arrival, before decoding.
        sensor: the source's name of the sensor's frame, or "".
        pose: pose of the sensor, if the source knows it.
    """

    name: str
    position: int
    cloud: PointCloud
    arrived_s: float
    sensor: str = ""
    pose: ScanPose | None = None


class Source(Protocol):
    """A source of scans.

    Attributes:
        name: name in messages.
        lasting: True reopens a broken source after a while; False ends the run with it.
    """

    name: str
    lasting: bool

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Yield scans on arrival, or an error for each unusable one, until ``stop`` is set.

        Every call reopens the source. The constructor checks its requirements.

        Raises:
            DataError, OSError: the source broke.
        """
