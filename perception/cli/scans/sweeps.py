"""Past scans for detectors that read several sweeps, in the commands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from perception.cli.scans.scan import Scan
from perception.config import PillarConfig
from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.scans.sweeps import SweepBuffer
from perception.types import PointCloud

#: Most scans before a new one that ``--resume`` reads again.
_MOST_SKIPPED = 32


class CommandSweeps:
    """Merges each scan of a command with the past scans of its folder or recording.

    Args:
        read: reads a scan with its time, and its pose.
    """

    def __init__(self, read: Callable[[Scan], tuple[PointCloud, ScanPose | None]]) -> None:
        self._read = read
        self._skipped: deque[Scan] = deque(maxlen=_MOST_SKIPPED)
        self._buffer: SweepBuffer | None = None
        self._first: object = None

    def skip(self, scan: Scan) -> None:
        """Note a scan that needs no detection, because ``--resume`` has its record."""
        self._skipped.append(scan)

    def merge(
        self, pillars: PillarConfig, scan: Scan, cloud: PointCloud, pose: ScanPose | None
    ) -> PointCloud:
        """Return the point cloud of a scan with those of past scans, if the detector reads them.

        Args:
            pillars: section of the detector.
            scan: origin of the scan.
            cloud: the scan with its time.
            pose: its pose; None: unknown, so that the cloud is returned as it is.
        """
        if self._buffer is None:
            self._buffer = SweepBuffer(pillars)
        while self._skipped and self._buffer.used:
            before = self._skipped.popleft()
            try:
                self._add(before, *self._read(before))
            except DataError:
                # An earlier run reported the unreadable scan.
                continue
        return self._add(scan, cloud, pose)

    def _add(self, scan: Scan, cloud: PointCloud, pose: ScanPose | None) -> PointCloud:
        assert self._buffer is not None
        if scan.first != self._first:
            self._first = scan.first
            self._buffer.clear()
        time_ns = None if pose is None or cloud.timestamp_ns is not None else pose.time_ns
        return self._buffer.merge(cloud, None if pose is None else pose.map_from_lidar, time_ns)
