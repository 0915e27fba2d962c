"""Reading of scans, by the options of a command."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from perception.cli.scans.options import columns_of
from perception.cli.scans.scan import Scan
from perception.data import Frame, OpenDataSets, frame_beside
from perception.errors import DataError
from perception.io import load_point_cloud
from perception.io.addresses import download
from perception.io.transform import ScanTransform
from perception.types import Boxes3D, PointCloud


@dataclass(frozen=True, eq=False)
class ReadScan:
    """A scan, and the frame of the data set that holds it, if any."""

    cloud: PointCloud
    frame: Frame | None

    @property
    def truth(self) -> Boxes3D | None:
        """Labels of the scan, or None."""
        return self.frame.truth if self.frame is not None and self.frame.labelled else None


class ScanReader:
    """Reader of scans, by the options of a command."""

    def __init__(self, options: argparse.Namespace, transform: ScanTransform) -> None:
        self._columns, self._transform, self._data_sets = columns_of(options), transform, OpenDataSets()

    def __call__(self, scan: Scan) -> ReadScan:
        """Read a scan, with the axes of its data set unless options describe the file.

        Raises:
            DataError: the scan is unreadable.
        """
        frame = self.frame_of(scan)
        return ReadScan(self.cloud(scan, frame), frame)

    def frame_of(self, scan: Scan) -> Frame | None:
        """Return the frame of the data set that holds the file of a scan, if any."""
        return None if scan.read is not None or scan.address else frame_beside(scan.path, self._data_sets)

    def cloud(self, scan: Scan, frame: Frame | None) -> PointCloud:
        """Read the points of a scan whose frame is known; raise ``DataError`` if they are unreadable."""
        if isinstance(scan.read, DataError):
            raise scan.read
        if scan.read is not None:
            return scan.read
        if scan.address:
            with download(scan.address) as path:
                cloud = load_point_cloud(path, columns=self._columns, transform=self._transform)
            return replace(cloud, source=scan.address)
        if frame is not None and self._columns is None and self._transform == ScanTransform():
            return frame.cloud
        return load_point_cloud(scan.path, columns=self._columns, transform=self._transform)
