"""A scan that a command is given, before it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perception.errors import DataError
from perception.io.recordings.bags import is_bag
from perception.types import PointCloud


@dataclass(frozen=True, eq=False)
class Scan:
    """A scan that is yet to be read: from a file, or out of a recording, where it may have failed.

    Its position is among the files, or in its recording, from 0; the sensor is what the recording calls it.
    What is to be fetched has an address, and a path for its name alone. The first is the file in whose
    folder it lies that comes before all others, or its recording, and the place is counted from there.
    """

    path: Path
    name: str
    position: int
    read: PointCloud | DataError | None = None
    sensor: str = ""
    address: str = ""
    first: Path | None = None
    place: int = 0

    @property
    def bag(self) -> Path | None:
        """The recording that it is out of."""
        return self.path if self.read is not None and is_bag(self.path) else None

    @property
    def source(self) -> str:
        """As the record of the frame names it."""
        cloud = self.read
        return (isinstance(cloud, PointCloud) and cloud.source) or self.address or str(self.path)
