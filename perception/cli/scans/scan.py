"""A scan given to a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perception.errors import DataError
from perception.io.recordings.bags import is_bag
from perception.types import PointCloud


@dataclass(frozen=True, eq=False)
class Scan:
    """A scan of a file or recording.

    Attributes:
        path: file or recording; for an address, only its name counts.
        name: name of the frame.
        position: index among the files, or in the recording, from 0.
        read: point cloud, or the error of reading it, for scans of recordings; None for files.
        sensor: the recording's name of the sensor's frame.
        address: address to download from, or "".
        first: first file of the same folder, or the recording; it dates scans without times.
        place: index relative to ``first``.
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
        """The recording of the scan, or None."""
        return self.path if self.read is not None and is_bag(self.path) else None

    @property
    def source(self) -> str:
        """The source of the scan in records."""
        cloud = self.read
        return (isinstance(cloud, PointCloud) and cloud.source) or self.address or str(self.path)
