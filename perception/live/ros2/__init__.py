"""ROS 2 topics over the middleware ``rmw_zenoh``, without an installation of ROS."""

from __future__ import annotations

from perception.live.ros2.address import SCHEME, Ros2Address
from perception.live.ros2.messages import CloudDecoder, MessageObject, described
from perception.live.ros2.publishing import Ros2Boxes
from perception.live.ros2.scans import Ros2Scans

__all__ = ["SCHEME", "CloudDecoder", "MessageObject", "Ros2Address", "Ros2Boxes", "Ros2Scans", "described"]
