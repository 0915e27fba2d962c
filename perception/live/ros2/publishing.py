"""Publishing of boxes and markers to ROS 2."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from perception.io.transform import ScanTransform
from perception.live.ros2.address import Ros2Address
from perception.live.ros2.messages import (
    DETECTIONS,
    MARKERS,
    described,
    detections_message,
    markers_message,
)
from perception.live.ros2.session import Ros2Session, zenoh_library
from perception.live.running import Result

#: Seconds between two attempts to reach the router.
_AGAIN_S = 2.0
#: Default frame of scans.
_FRAME = "lidar"


class Ros2Boxes:
    """A sink that publishes tracks, as ``vision_msgs/Detection3DArray`` on ``detections`` and as ``markers``.

    Boxes are in the sensor's frame, in metres; ids are track ids. If there is no router, results are dropped
    until one appears.

    Args:
        address: namespace of both topics.
        transform: transform of the scans; boxes are converted back to the sensor's axes.
        predict_s: publishes boxes at the time of delivery, plus these seconds; None publishes those of the
            scan.
        say: called with messages for the user.

    Raises:
        ImportError: eclipse-zenoh is missing; the message has the pip command.
        ValueError: the axes are mirrored, which ROS frames do not support.
    """

    def __init__(
        self,
        address: Ros2Address,
        *,
        transform: ScanTransform | None = None,
        predict_s: float | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        zenoh_library()
        self._rotation = (transform or ScanTransform()).rotation
        if np.linalg.det(self._rotation) < 0:
            raise ValueError("ROS frames cannot be mirrored. Correct --axes, or leave out --publish ros2.")
        self._address, self._say, self._predict_s = address, say, predict_s
        self._session: Ros2Session | None = None
        self._publish: list[Callable[[bytes], None]] = []
        self._again_s = 0.0

    def take(self, result: Result) -> None:
        """Publish a result."""
        if self._session is None and not self._opened():
            return
        tracks = result.tracks if self._predict_s is None else result.deliver(self._predict_s).tracks
        objects = list(described(tracks, self._rotation))
        frame, time_ns = result.arrival.sensor or _FRAME, tracks.timestamp_ns or 0
        detections, markers = self._publish
        detections(detections_message(objects, frame, time_ns))
        markers(markers_message(objects, frame, time_ns))

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()

    def _opened(self) -> bool:
        """Connect to the router, at most every two seconds; return True if connected."""
        if time.monotonic() < self._again_s:
            return False
        try:
            self._session = Ros2Session(self._address, node="sparsight_boxes")
        except OSError as error:
            self._say(f"publishing failed: {error}")
            self._again_s = time.monotonic() + _AGAIN_S
            return False
        topics = (("detections", DETECTIONS), ("markers", MARKERS))
        self._publish = [
            self._session.publisher(f"{self._address.name}/{topic}", kind) for topic, kind in topics
        ]
        return True
