"""Boxes and markers for the nodes of a robot."""

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
#: The frame of scans whose source names none.
_FRAME = "lidar"


class Ros2Boxes:
    """A sink: tracks that are seen, as ``vision_msgs/Detection3DArray`` on ``detections`` and as ``markers``.

    Boxes are in the frame of the sensor, in metres; ids are numbers of tracks. A router that is not there is
    asked for again; what is found meanwhile nobody hears.

    Args:
        address: of the namespace of both topics.
        transform: that scans went through: boxes go back to the sensor's own axes.
        say: called with what a person should know.

    Raises:
        ImportError: eclipse-zenoh is missing; the message names the extra.
        ValueError: the axes mirror, which no frame of ROS does.
    """

    def __init__(
        self,
        address: Ros2Address,
        *,
        transform: ScanTransform | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        zenoh_library()
        self._rotation = (transform or ScanTransform()).rotation
        if np.linalg.det(self._rotation) < 0:
            raise ValueError("axes that mirror have no frame in ROS, so boxes cannot be published there")
        self._address, self._say = address, say
        self._session: Ros2Session | None = None
        self._publish: list[Callable[[bytes], None]] = []
        self._again_s = 0.0

    def take(self, result: Result) -> None:
        """Publish a result."""
        if self._session is None and not self._opened():
            return
        things = list(described(result.tracks, self._rotation))
        frame, time_ns = result.arrival.sensor or _FRAME, result.arrival.cloud.timestamp_ns or 0
        detections, markers = self._publish
        detections(detections_message(things, frame, time_ns))
        markers(markers_message(things, frame, time_ns))

    def close(self) -> None:
        """Leave."""
        if self._session is not None:
            self._session.close()

    def _opened(self) -> bool:
        """Whether the router is there; asked every two seconds at most."""
        if time.monotonic() < self._again_s:
            return False
        try:
            self._session = Ros2Session(self._address, node="sparsight_boxes")
        except OSError as error:
            self._say(f"boxes are not published: {error}")
            self._again_s = time.monotonic() + _AGAIN_S
            return False
        topics = (("detections", DETECTIONS), ("markers", MARKERS))
        self._publish = [
            self._session.publisher(f"{self._address.name}/{topic}", kind) for topic, kind in topics
        ]
        return True
