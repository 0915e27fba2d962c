"""What a record says beside the boxes, for a memory: where, when, by which encoder, what stands around.

``docs/memory-format.md`` has the fields.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.checkpoints.weights import resolve_weights
from perception.cli.console import REMARKS
from perception.cli.scans.scan import Scan
from perception.data import Frame
from perception.errors import DataError
from perception.io.poses import ScanPose, ScanPoses
from perception.io.recordings.bag_poses import BagPoses, pose_topics
from perception.io.recordings.bags import is_bag, open_bag
from perception.io.times import ScanTimes, find_times_file, time_in_name
from perception.io.transform import ScanTransform
from perception.model.embedding import digest, embedding_path
from perception.scans.free import free_distances
from perception.types import Detections, PointCloud
from perception.vectors import packed
from sparse_core.common.columns import standing_columns

#: Beyond this half precision, in which columns are written, is coarser than they need.
_MOST_METRES = 4096.0


def add_surroundings_options(parser: argparse.ArgumentParser) -> None:
    """``--poses``, ``--times``, ``--pose-topic``, ``--camera-poses`` and ``--no-places``."""
    group = parser.add_argument_group("for a memory (recall import)")
    group.add_argument(
        "--poses",
        type=Path,
        help="of the LiDAR in the map: rows of 3x4 matrices (KITTI) or of time x y z qx qy qz qw (TUM), JSONL"
        " with frame x y z yaw (time), or a bag; not needed for scans in a data set that has poses",
    )
    group.add_argument(
        "--times", type=Path, help="of scans in files, a line each: seconds, or date and time (UTC)"
    )
    group.add_argument(
        "--pose-topic", help="take poses out of the bag given with --poses, or the one that is detected"
    )
    group.add_argument(
        "--camera-poses",
        action="store_true",
        help="the rows are of KITTI's camera 0 (odometry)",
    )
    group.add_argument(
        "--no-places",
        action="store_true",
        help="leave out what stands around, by which places are known again, and how far the view is free",
    )


class Surroundings:
    """What the options ask for.

    Args:
        options: of the command line.
        transform: of the scans.
        recorded_poses: without an option that says where poses are, those of a recording are taken where it
            has some.

    Raises:
        DataError: the file of poses or times cannot be used, or a recording has no such poses.
        ValueError: ``--camera-poses`` or ``--pose-topic`` where no such poses are.
    """

    def __init__(
        self, options: argparse.Namespace, transform: ScanTransform, *, recorded_poses: bool = False
    ) -> None:
        bag = None if options.poses is None or not is_bag(options.poses) else options.poses
        if options.camera_poses and (options.poses is None or bag is not None):
            raise ValueError("--camera-poses needs --poses with a file of rows")
        if options.pose_topic is not None and options.poses is not None and bag is None:
            raise ValueError(f"--pose-topic is for bags; --poses {options.poses} is none")
        if options.pose_topic is not None and bag is None and not any(map(is_bag, options.paths)):
            raise ValueError(f"--pose-topic {options.pose_topic} needs a bag: give it, or --poses BAG")
        read = options.poses is not None and bag is None
        self._poses = ScanPoses(options.poses, camera=options.camera_poses) if read else None
        self._times = None if options.times is None else ScanTimes(options.times)
        self._beside: dict[Path, ScanTimes] = {}
        self._bag, self._pose_topic = bag, options.pose_topic
        self._recorded = recorded_poses and options.poses is None and options.pose_topic is None
        self._bag_poses: dict[tuple[Path, str], BagPoses | DataError | None] = {}
        # What no scan can have poses of is said once, before the first is detected.
        asked = [] if options.pose_topic is None else filter(is_bag, dict.fromkeys(options.paths))
        for recording in asked if bag is None else [bag]:
            with open_bag(recording) as opened:
                pose_topics(opened, options.pose_topic)
        self._turn = np.eye(4)
        self._turn[:3, :3] = transform.rotation.T
        self._places = not options.no_places
        self._weights = options.weights
        self._encoder: str | None = None

    def timed(self, cloud: PointCloud, scan: Scan, beside: Frame | None = None) -> PointCloud:
        """A scan with its time.

        Of a recording that of its message, else that of ``--times``. Of a file that of ``--times``, else of
        its data set, of its points, of its name, or of a file of times beside its folder.

        Args:
            cloud: as it was read.
            scan: where it is from.
            beside: the frame of the data set in which it lies, if it does.

        Raises:
            DataError: a file of times has none for it, or cannot be used.
        """
        if scan.read is not None and cloud.timestamp_ns is not None:
            return cloud
        if self._times is not None:
            return replace(cloud, timestamp_ns=self._times.find(scan.name, scan.position))
        if scan.read is not None:
            return cloud
        known = (None if beside is None else beside.time_ns, cloud.timestamp_ns, time_in_name(scan.path.stem))
        time_ns = next((one for one in known if one is not None), None)
        if time_ns is None and (times := self._times_beside(scan)) is not None:
            time_ns = times.find(scan.path.stem, scan.position)
        return replace(cloud, timestamp_ns=time_ns)

    def line_of(self, scan: Scan) -> str:
        """The line of ``--times`` that a scan's time is from, for messages; empty without that file."""
        if self._times is None or scan.read is not None:
            return ""
        return f"{self._times.path}: line {self._times.line(scan.name, scan.position)}: "

    def _times_beside(self, scan: Scan) -> ScanTimes | None:
        path = None if scan.address else find_times_file(scan.path)
        if path is None:
            return None
        if path not in self._beside:
            self._beside[path] = ScanTimes(path)
        return self._beside[path]

    def pose_of(
        self,
        name: str,
        position: int,
        time_ns: int | None,
        beside: Frame | None = None,
        *,
        bag: Path | None = None,
        sensor: str = "",
    ) -> dict[str, Any]:
        """The field ``pose``, where there is one; arguments and errors are those of :meth:`scan_pose`."""
        pose = self.scan_pose(name, position, time_ns, beside, bag=bag, sensor=sensor)
        return {} if pose is None else {"pose": pose.to_dict()}

    def scan_pose(
        self,
        name: str,
        position: int,
        time_ns: int | None,
        beside: Frame | None = None,
        *,
        bag: Path | None = None,
        sensor: str = "",
    ) -> ScanPose | None:
        """Where a scan was made: by the poses of the options, else of the scan's data set; None without.

        Args:
            name: of the frame.
            position: of the scan, from 0.
            time_ns: of the scan, if known.
            beside: the frame of the data set in which the scan lies, if it does.
            bag: the recording in which the scan is.
            sensor: what the recording calls its frame.

        Raises:
            DataError: the scan has no pose.
        """
        if self._poses is not None:
            return self._poses.find(name, position, time_ns)
        recorded = self._pose_topic is not None or self._recorded
        source = bag if self._bag is None and recorded else self._bag
        poses = None if source is None else self._poses_in(source, sensor)
        if poses is None:
            return None if beside is None or beside.pose is None else ScanPose(beside.pose, beside.time_ns)
        matrix = None if time_ns is None else poses.at(time_ns)
        if time_ns is None or matrix is None:
            when = "of no known time (--times)" if time_ns is None else f"at {time_ns / 1e9:.3f} s"
            raise DataError(
                f"{source}: {', '.join(poses.topics)}: no pose within a second of scan {name!r}, {when};"
                " are the clocks of sensor and poses the same?"
            )
        # The recording tells where the sensor's own axes are, not those that the scan was turned to.
        return ScanPose(matrix @ self._turn, time_ns)

    def way(self, recording: Path, frame: str) -> Callable[[int], npt.NDArray[np.float64] | None] | None:
        """Where a frame was at any time, (4, 4) map_from_frame; None where poses are not known by time.

        Args:
            recording: that is detected.
            frame: what a recording calls it.

        Raises:
            DataError: a recording has no poses, or several.
        """
        if self._poses is not None:
            return self._poses.at if self._poses.by_time else None
        source = recording if self._bag is None and self._pose_topic is not None else self._bag
        poses = None if source is None else self._poses_in(source, frame)
        return None if poses is None else poses.at

    def _poses_in(self, bag: Path, sensor: str) -> BagPoses | None:
        """The poses of a recording, which is read through once, by a handle of its own.

        None where they were not asked for and cannot be had; it is said why.
        """
        if (bag, sensor) not in self._bag_poses:
            try:
                with open_bag(bag) as opened:
                    self._bag_poses[bag, sensor] = BagPoses(opened, self._pose_topic, sensor=sensor)
            except DataError as error:
                self._bag_poses[bag, sensor] = None if self._recorded else error
                if self._recorded:
                    REMARKS.print(
                        f"without poses: {error}",
                        style="yellow",
                        highlight=False,
                        markup=False,
                        soft_wrap=True,
                    )
        found = self._bag_poses[bag, sensor]
        if isinstance(found, DataError):
            raise found
        return found

    def fields(self, cloud: PointCloud, detections: Detections) -> dict[str, Any]:
        """Further fields of a record."""
        found: dict[str, Any] = {"detected_ns": time.time_ns()}
        if detections.embeddings is not None:
            found["encoder"] = self._encoder_name()
        if self._places:
            points = cloud.points
            # Of what is no number this is not true either.
            usable = np.abs(points) < _MOST_METRES
            columns = standing_columns(points if usable.all() else points[usable.all(axis=1)])
            found["structure"] = packed(np.column_stack([columns.boxes, columns.scores]))
            found["free"] = packed(np.minimum(free_distances(cloud), _MOST_METRES)[None])
        return found

    def _encoder_name(self) -> str:
        """Weights and what is in their head: vectors of others cannot be compared."""
        if self._encoder is None:
            path = resolve_weights(self._weights)
            # A head beside the weights names their bytes, so that its own tell both.
            head = embedding_path(path)
            self._encoder = f"{path.stem}@{digest(head if head.is_file() else path)[:8]}"
        return self._encoder
