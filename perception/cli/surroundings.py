"""What a record says beside the boxes, for a memory: where, when, by which encoder, what stands around.

``docs/memory-format.md`` has the fields.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from perception.data import Frame
from perception.io.poses import ScanPose, ScanPoses
from perception.model.embedding import digest, embedding_path
from perception.model.weights import resolve_weights
from perception.types import Detections, PointCloud
from perception.vectors import packed
from sparse_core.columns import standing_columns

#: Beyond this half precision, in which columns are written, is coarser than they need.
_MOST_METRES = 4096.0


def add_surroundings_options(parser: argparse.ArgumentParser) -> None:
    """``--poses``, ``--camera-poses`` and ``--no-places``."""
    group = parser.add_argument_group("for a memory (recall import)")
    group.add_argument(
        "--poses",
        type=Path,
        help="of the LiDAR in the map: rows of 3x4 matrices, or JSONL with frame x y z yaw (time); not needed"
        " for scans in a data set that has poses",
    )
    group.add_argument(
        "--camera-poses",
        action="store_true",
        help="the rows are of KITTI's camera 0 (odometry)",
    )
    group.add_argument(
        "--no-places",
        action="store_true",
        help="leave out what stands around, by which places are known again",
    )


class Surroundings:
    """What the options ask for.

    Args:
        options: of the command line.

    Raises:
        DataError: the file of poses cannot be used.
        ValueError: ``--camera-poses`` without ``--poses``.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        if options.camera_poses and options.poses is None:
            raise ValueError("--camera-poses needs --poses")
        self._poses = None if options.poses is None else ScanPoses(options.poses, camera=options.camera_poses)
        self._places = not options.no_places
        self._weights = options.weights
        self._encoder: str | None = None

    def pose_of(self, name: str, position: int, beside: Frame | None = None) -> dict[str, Any]:
        """The field ``pose``, where there are poses: those of the option, else of the scan's data set.

        Args:
            name: of the frame.
            position: of the scan, from 0.
            beside: the frame of the data set in which the scan lies, if it does.

        Raises:
            DataError: the scan has no pose.
        """
        pose = self.scan_pose(name, position, beside)
        return {} if pose is None else {"pose": pose.to_dict()}

    def scan_pose(self, name: str, position: int, beside: Frame | None = None) -> ScanPose | None:
        """The pose itself; arguments and errors are those of :meth:`pose_of`."""
        if self._poses is not None:
            return self._poses.find(name, position)
        return None if beside is None or beside.pose is None else ScanPose(beside.pose, beside.time_ns)

    def fields(self, cloud: PointCloud, detections: Detections) -> dict[str, Any]:
        """Further fields of a record."""
        found: dict[str, Any] = {"detected_ns": time.time_ns()}
        if detections.embeddings is not None:
            found["encoder"] = self._encoder_name()
        if self._places:
            points = cloud.points
            usable = np.isfinite(points).all(axis=1) & (np.abs(points) < _MOST_METRES).all(axis=1)
            columns = standing_columns(points[usable])
            found["structure"] = packed(np.column_stack([columns.boxes, columns.scores]))
        return found

    def _encoder_name(self) -> str:
        """Weights and what is in their head: vectors of others cannot be compared."""
        if self._encoder is None:
            path = resolve_weights(self._weights)
            # A head beside the weights names their bytes, so that its own tell both.
            head = embedding_path(path)
            self._encoder = f"{path.stem}@{digest(head if head.is_file() else path)[:8]}"
        return self._encoder
