"""Live detection and tracking: sources of scans, runs that keep up with them, and their statistics."""

from __future__ import annotations

from perception.live.arrivals import Arrival, Source
from perception.live.figures import Figures
from perception.live.folder import GrowingFolder
from perception.live.newest import NewestQueue
from perception.live.pushed import PushedScans
from perception.live.replay import Recorded, Replay
from perception.live.ros2 import Ros2Address, Ros2Boxes, Ros2Scans
from perception.live.running import Delivery, LiveRun, Result, Sink
from perception.live.udp import PacketSocket, UdpAddress

__all__ = [
    "Arrival",
    "Delivery",
    "Figures",
    "GrowingFolder",
    "LiveRun",
    "NewestQueue",
    "PacketSocket",
    "PushedScans",
    "Recorded",
    "Replay",
    "Result",
    "Ros2Address",
    "Ros2Boxes",
    "Ros2Scans",
    "Sink",
    "Source",
    "UdpAddress",
]
