"""What a live source is: scans as they come, until it breaks or is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.types import PointCloud


class Arrival(NamedTuple):
    """A scan that has come.

    Attributes:
        name: of the scan, as records name their frames.
        position: among the scans of its source, from 0.
        cloud: points in the LiDAR frame, with a time.
        arrived_s: ``time.monotonic()`` when all of it was there, before it was decoded.
        sensor: what the source calls the sensor's frame, or ``""``.
        pose: where the sensor was, where the source knows that.
    """

    name: str
    position: int
    cloud: PointCloud
    arrived_s: float
    sensor: str = ""
    pose: ScanPose | None = None


class Source(Protocol):
    """Somewhere that scans come from.

    Attributes:
        name: in messages.
        lasting: one that breaks is opened again after a while; otherwise the run is over with it.
    """

    name: str
    lasting: bool

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Scans as they come, an error in the place of each that cannot be used; ends once ``stop`` is set.

        Every call opens the source anew. What it needs is checked when the source is made.

        Raises:
            DataError, OSError: the source broke.
        """
