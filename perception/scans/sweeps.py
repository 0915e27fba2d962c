"""Several scans as one: past scans of a drive, moved into the current one by poses, with ages of points.

A detector with ``pillars.sweeps`` above 1 reads such point clouds. Everything that feeds one, data sets and
streams alike, merges scans with :func:`merge_scans`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from perception.config import PillarConfig
from perception.rigid_motion import Matrix, checked_pose, inverse, jumps, moved_points
from perception.types import PointCloud

#: Time between scans without times: 10 Hz.
FRAME_S = 0.1
#: Points of past scans this close to their sensor, in x and in y, belong to the own vehicle, which moves
#: along. nuScenes' devkit removes the same points.
_OWN_M = 1.0


class PastScan(NamedTuple):
    """A past scan of a drive.

    Attributes:
        cloud: the scan in its own LiDAR frame.
        frame_from_scan: (4, 4) float64 transform into the current LiDAR frame.
        age_s: time from this scan to the current one.
    """

    cloud: PointCloud
    frame_from_scan: Matrix
    age_s: float


def merge_scans(cloud: PointCloud, past: Iterable[PastScan]) -> PointCloud:
    """Return the points of a scan, age 0, followed by those of past scans.

    Objects that moved leave a trail of older points. Points of the own vehicle, within 1 m of the sensor in x
    and y, are taken from the current scan only.
    """
    points, ages = [cloud.points], [np.zeros(len(cloud), np.float32)]
    for scan in past:
        others = scan.cloud.points
        near = np.abs(others[:, :2]) < _OWN_M
        points.append(moved_points(others[~near.all(axis=1)], scan.frame_from_scan))
        ages.append(np.full(len(points[-1]), scan.age_s, np.float32))
    return replace(cloud, points=np.concatenate(points), ages_s=np.concatenate(ages))


class _BufferedScan(NamedTuple):
    """A scan of a stream: points, (4, 4) map_from_lidar and time."""

    cloud: PointCloud
    pose: Matrix
    time_ns: int


class SweepBuffer:
    """The last scans of a drive, merged into each new one.

    >>> sweeps = SweepBuffer(detector.config.pillars)  # one per drive
    >>> pose = np.eye(4)  # map_from_lidar of the scan
    >>> detections = detector(sweeps.merge(PointCloud(points), pose))

    The buffer starts again, without past scans, if a scan has no pose, if the time does not advance, and if
    the pose jumps.

    Args:
        pillars: section of the detector, which names the number of scans and their greatest age.
        frame_s: time between scans that have no time.
    """

    def __init__(self, pillars: PillarConfig, *, frame_s: float = FRAME_S) -> None:
        self._max_age_s, self._frame_s = pillars.max_age_s, frame_s
        self._scans: deque[_BufferedScan] = deque(maxlen=pillars.sweeps - 1)

    @property
    def used(self) -> bool:
        """True if the detector reads past scans."""
        return self._scans.maxlen != 0

    def clear(self) -> None:
        """Forget all past scans, before the first scan of another drive."""
        self._scans.clear()

    def merge(self, cloud: PointCloud, pose: Any = None, time_ns: int | None = None) -> PointCloud:
        """Return a scan with the past scans of its drive, and keep it for the next ones.

        Args:
            cloud: the next scan.
            pose: (4, 4) map_from_lidar; None: unknown, so that the scan is returned as it is.
            time_ns: time of the scan; None: that of the cloud, else ``frame_s`` after the previous scan.

        Raises:
            ValueError: the pose is not a rigid motion.
        """
        if not self.used:
            return cloud
        if pose is None:
            self.clear()
            return cloud
        placed = checked_pose(pose)
        known = cloud.timestamp_ns if time_ns is None else time_ns
        last = self._scans[-1] if self._scans else None
        if known is None:
            known = 0 if last is None else last.time_ns + round(self._frame_s * 1e9)
        if last is not None and not (
            last.time_ns < known and not jumps(last.pose, placed, (known - last.time_ns) * 1e-9)
        ):
            self.clear()
        back, past = inverse(placed), list[PastScan]()
        for scan in reversed(self._scans):
            age_s = (known - scan.time_ns) * 1e-9
            if age_s > self._max_age_s:
                break
            past.append(PastScan(scan.cloud, back @ scan.pose, age_s))
        self._scans.append(_BufferedScan(cloud, placed, known))
        return merge_scans(cloud, past)
