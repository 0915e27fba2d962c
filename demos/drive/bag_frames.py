"""Scans of a ROS 2 bag or an MCAP file with poses, as frames of a drive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drive.frames import DAY_NS, Frame
from memory.exchange.poses import Pose, read_poses
from perception.errors import DataError
from perception.io.recordings.bag_poses import BagPoses
from perception.io.recordings.bag_scans import BagScans
from perception.io.recordings.bags import Bag, open_bag


class BagFrames:
    """The scans of a recording that have a pose; every iteration reads them anew.

    Args:
        path: of the recording.
        topic: of point clouds; by default the only one.
        pose_topic: of odometry, poses or transforms; by default the only one.
        poses_file: file with poses by scan number instead, see :mod:`memory.exchange.poses`.

    Attributes:
        skipped: number of scans without a pose, known after an iteration.
    """

    def __init__(
        self,
        path: Path,
        *,
        topic: str | None = None,
        pose_topic: str | None = None,
        poses_file: Path | None = None,
    ) -> None:
        self.path = path
        self.skipped = 0
        self._topic, self._pose_topic = topic, pose_topic
        self._poses_file = poses_file
        with open_bag(path) as bag:
            self._count = len(BagScans(bag, topic))

    def __len__(self) -> int:
        """Return the number of scans, with or without pose."""
        return self._count

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames in recording order.

        Raises:
            DataError: a scan is unreadable, or no scan has a pose.
        """
        first_day: int | None = None
        self.skipped = 0
        with open_bag(self.path) as bag:
            for number, scan, pose in self._posed(bag):
                if pose is None:
                    self.skipped += 1
                    continue
                time_ns = scan.timestamp_ns or 0
                first_day = time_ns // DAY_NS if first_day is None else first_day
                name = f"{self.path.stem}-{number:06d}"
                yield Frame(name, time_ns // DAY_NS - first_day, time_ns, scan, pose)
        if self.skipped and first_day is None:
            raise DataError(
                f"{self.path}: none of {self.skipped} scans has a pose within a second. Check that sensor"
                " and poses use the same clock"
            )

    def _posed(self, bag: Bag) -> Iterator:
        scans = BagScans(bag, self._topic)
        poses: BagPoses | None = None
        given = None if self._poses_file is None else read_poses(self._poses_file)
        for scan in scans:
            if given is not None:
                pose: Pose = given.find(str(scan.number), scan.number)
                yield scan.number, scan.cloud, np.asarray(pose.map_from_lidar)
                continue
            if poses is None:
                # Use a second handle, because this one is iterating over the scans.
                with open_bag(self.path) as other:
                    poses = BagPoses(other, self._pose_topic, sensor=scan.frame_id)
            yield scan.number, scan.cloud, poses.at(scan.cloud.timestamp_ns or 0)
