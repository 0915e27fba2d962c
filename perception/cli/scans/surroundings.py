"""Fields of records that a memory needs besides boxes: pose, time, encoder, structure.

``docs/memory-format.md`` describes the fields.
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
from perception.cli.scans.reading import ReadScan
from perception.cli.scans.scan import Scan
from perception.data import Frame
from perception.errors import DataError
from perception.io.poses import ScanPose, ScanPoses
from perception.io.recordings.bag_poses import BagPoses, pose_topics
from perception.io.recordings.bags import is_bag, open_bag
from perception.io.times import ScanTimes, find_times_file, is_numbered, time_in_name
from perception.io.transform import ScanTransform
from perception.model.embedding import digest, embedding_path
from perception.scans.free import free_distances
from perception.types import Detections, PointCloud
from perception.vectors import packed
from sparse_core.columns.api import standing_columns
from sparse_core.common.console import LOG

#: Beyond this distance float16, in which columns are stored, is too coarse.
_MOST_METRES = 4096.0


def add_surroundings_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for poses, times and places."""
    group = parser.add_argument_group("poses and times (for recall import)")
    group.add_argument(
        "--poses",
        type=Path,
        help="LiDAR poses in the map: KITTI (3x4 matrices), TUM (time x y z qx qy qz qw), JSONL, or a bag"
        " (default: poses of the data set)",
    )
    group.add_argument(
        "--times", type=Path, help="file with one time per scan and line: seconds, or date and time in UTC"
    )
    group.add_argument("--pose-topic", help="topic of poses in the bag of --poses, or else in the given bag")
    group.add_argument("--camera-poses", action="store_true", help="poses are of KITTI's camera 0 (odometry)")
    group.add_argument(
        "--no-places",
        action="store_true",
        help="leave out the structure and free distances that place recognition needs",
    )


class Surroundings:
    """Poses, times, encoder and structure of scans, by the options of a command.

    Args:
        options: options of the command.
        transform: transform of the scans.
        recorded_poses: True takes poses from recordings by default.

    Raises:
        DataError: the file of poses or times is invalid, or a recording has no such poses.
        ValueError: ``--camera-poses`` or ``--pose-topic`` does not fit ``--poses``.
    """

    def __init__(
        self, options: argparse.Namespace, transform: ScanTransform, *, recorded_poses: bool = False
    ) -> None:
        bag = None if options.poses is None or not is_bag(options.poses) else options.poses
        if options.camera_poses and (options.poses is None or bag is not None):
            raise ValueError("--camera-poses needs --poses FILE in KITTI's or TUM's format. Add it.")
        if options.pose_topic is not None and options.poses is not None and bag is None:
            raise ValueError(
                f"--pose-topic needs a bag, but --poses {options.poses} is not one. Leave it out."
            )
        if options.pose_topic is not None and bag is None and not any(map(is_bag, options.paths)):
            raise ValueError(f"--pose-topic {options.pose_topic} needs a bag. Name one, or add --poses BAG.")
        read = options.poses is not None and bag is None
        self._poses = ScanPoses(options.poses, camera=options.camera_poses) if read else None
        self._times = None if options.times is None else ScanTimes(options.times)
        self._folder_times: dict[Path, ScanTimes | None] = {}
        self._bag, self._pose_topic = bag, options.pose_topic
        self._recorded = recorded_poses and options.poses is None and options.pose_topic is None
        self._bag_poses: dict[tuple[Path, str], BagPoses | DataError | None] = {}
        # Fail before the first detection if a bag has no such poses.
        asked = [] if options.pose_topic is None else filter(is_bag, dict.fromkeys(options.paths))
        for recording in asked if bag is None else [bag]:
            with open_bag(recording) as opened:
                pose_topics(opened, options.pose_topic)
        self._turn = np.eye(4)
        self._turn[:3, :3] = transform.rotation.T
        self._places = not options.no_places
        self._weights = options.weights
        self._encoder: str | None = None

    def with_pose(self, scan: Scan, read: ReadScan) -> tuple[PointCloud, ScanPose | None]:
        """Return a scan with its time, and its pose; raise ``DataError`` as the methods for each."""
        cloud = self.timed(read.cloud, scan, read.frame)
        return cloud, self.pose_of(scan, cloud, read.frame)

    def timed(self, cloud: PointCloud, scan: Scan, frame: Frame | None = None) -> PointCloud:
        """Return a scan with its time.

        Scans of recordings have the time of their message, else of ``--times``. Files have the first of:
        ``--times``, their data set, their points, their name, a file of times next to their folder.

        Args:
            cloud: points of the scan.
            scan: origin of the scan.
            frame: the frame of the data set that holds the scan, if any.

        Raises:
            DataError: the file of times is invalid or too short.
        """
        if scan.read is not None and cloud.timestamp_ns is not None:
            return cloud
        if self._times is not None:
            return replace(cloud, timestamp_ns=self._times.find(scan.name, scan.position))
        if scan.read is not None:
            return cloud
        known = (None if frame is None else frame.time_ns, cloud.timestamp_ns, time_in_name(scan.path.stem))
        time_ns = next((one for one in known if one is not None), None)
        if time_ns is None and (times := self._times_beside(scan)) is not None:
            time_ns = times.find(scan.path.stem, scan.position)
        return replace(cloud, timestamp_ns=time_ns)

    def line_of(self, scan: Scan) -> str:
        """Return the line of ``--times`` with a scan's time, for messages; "" without the option."""
        if self._times is None or scan.read is not None:
            return ""
        return f"{self._times.path}: line {self._times.line(scan.name, scan.position)}: "

    def _times_beside(self, scan: Scan) -> ScanTimes | None:
        if scan.address or not is_numbered(scan.path):
            return None
        folder = scan.path.parent
        if folder not in self._folder_times:
            path = find_times_file(folder)
            self._folder_times[folder] = None if path is None else ScanTimes(path)
        return self._folder_times[folder]

    def pose_of(self, scan: Scan, cloud: PointCloud, frame: Frame | None) -> ScanPose | None:
        """Return the pose of a scan with its time; see :meth:`scan_pose`."""
        return self.scan_pose(
            scan.name, scan.position, cloud.timestamp_ns, frame, bag=scan.bag, sensor=scan.sensor
        )

    def scan_pose(
        self,
        name: str,
        position: int,
        time_ns: int | None,
        frame: Frame | None = None,
        *,
        bag: Path | None = None,
        sensor: str = "",
    ) -> ScanPose | None:
        """Return the pose of a scan, from the options or its data set, or None.

        Args:
            name: name of the frame.
            position: index of the scan, from 0.
            time_ns: time of the scan, if known.
            frame: the frame of the data set that holds the scan, if any.
            bag: recording of the scan.
            sensor: the recording's name of the sensor's frame.

        Raises:
            DataError: the given poses have none for the scan.
        """
        if self._poses is not None:
            return self._poses.find(name, position, time_ns)
        recorded = self._pose_topic is not None or self._recorded
        source = bag if self._bag is None and recorded else self._bag
        poses = None if source is None else self._poses_in(source, sensor)
        if poses is None:
            return None if frame is None or frame.pose is None else ScanPose(frame.pose, frame.time_ns)
        matrix = None if time_ns is None else poses.at(time_ns)
        if time_ns is None or matrix is None:
            if time_ns is None:
                raise DataError(f"{source}: scan {name!r} has no time to find its pose by. Add --times FILE.")
            raise DataError(
                f"{source}: {', '.join(poses.topics)}: no pose within 1 s of scan {name!r} at"
                f" {time_ns / 1e9:.3f} s. Check that sensor and poses use the same clock."
            )
        # The recording has poses of the sensor's own axes, not of those after the transform.
        return ScanPose(matrix @ self._turn, time_ns)

    def trajectory(
        self, recording: Path, frame: str
    ) -> Callable[[int], npt.NDArray[np.float64] | None] | None:
        """Return a function from times to (4, 4) map_from_frame; None without poses by time.

        Args:
            recording: recording with the scans.
            frame: name of the frame in recordings.

        Raises:
            DataError: a recording has no poses, or several topics of them.
        """
        if self._poses is not None:
            return self._poses.at if self._poses.by_time else None
        source = recording if self._bag is None and self._pose_topic is not None else self._bag
        poses = None if source is None else self._poses_in(source, frame)
        return None if poses is None else poses.at

    def _poses_in(self, bag: Path, sensor: str) -> BagPoses | None:
        """Read the poses of a recording once; without any, warn if they are optional and return None."""
        if (bag, sensor) not in self._bag_poses:
            try:
                with open_bag(bag) as opened:
                    self._bag_poses[bag, sensor] = BagPoses(opened, self._pose_topic, sensor=sensor)
            except DataError as error:
                self._bag_poses[bag, sensor] = None if self._recorded else error
                if self._recorded:
                    LOG.warning("tracking without poses: %s", error)
        found = self._bag_poses[bag, sensor]
        if isinstance(found, DataError):
            raise found
        return found

    def fields(self, detections: Detections) -> dict[str, Any]:
        """Return the time of detection and the encoder, for a record."""
        found: dict[str, Any] = {"detected_ns": time.time_ns()}
        if detections.embeddings is not None:
            found["encoder"] = self._encoder_name()
        return found

    def places(self, cloud: PointCloud) -> dict[str, Any]:
        """Return the structure and free distances of a scan, for a record; nothing with ``--no-places``."""
        if not self._places:
            return {}
        points = cloud.points
        # False for NaN, too.
        usable = np.abs(points) < _MOST_METRES
        columns = standing_columns(points if usable.all() else points[usable.all(axis=1)])
        return {
            "structure": packed(np.column_stack([columns.boxes, columns.scores])),
            "free": packed(np.minimum(free_distances(cloud), _MOST_METRES)[None]),
        }

    def _encoder_name(self) -> str:
        """Return the name of the encoder: embeddings of other weights or heads are not comparable."""
        if self._encoder is None:
            path = resolve_weights(self._weights)
            # A head in a file of its own contains the digest of its weights.
            head = embedding_path(path)
            self._encoder = f"{path.stem}@{digest(head if head.is_file() else path)[:8]}"
        return self._encoder
