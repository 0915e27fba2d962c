"""Scans of a ROS 2 topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from perception.errors import DataError
from perception.io.transform import ScanTransform
from perception.live.arrivals import Arrival
from perception.live.newest import NewestQueue
from perception.live.ros2.address import Ros2Address
from perception.live.ros2.messages import CLOUD, CloudDecoder
from perception.live.ros2.session import Ros2Session, sent_ns, zenoh_library

#: Capacity for messages to decode, of some megabytes each.
_WAITING = 8
_SILENCE_S, _WAIT_S = 5.0, 0.2


class _ReceivedMessage(NamedTuple):
    """A sample of Zenoh, and ``time.monotonic()`` on arrival."""

    sample: Any
    arrived_s: float


class Ros2Scans:
    """A topic of ``sensor_msgs/PointCloud2`` as a source.

    Args:
        address: address of the topic.
        transform: transform of the scans.
        say: called with messages for the user.

    Raises:
        ImportError: eclipse-zenoh is missing; the message has the pip command.
        ValueError: the address has no topic.
    """

    lasting = True

    def __init__(
        self,
        address: Ros2Address,
        *,
        transform: ScanTransform | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not address.name:
            raise ValueError("ros2: has no topic. Write for example ros2:/points.")
        zenoh_library()
        self.name = f"ros2:{address.name}"
        self._address, self._say = address, say
        self._decode = CloudDecoder(self.name, transform)
        self._position = 0

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Yield scans on arrival; if decoding is too slow, the oldest messages are dropped.

        Raises:
            OSError: there is no router.
        """
        waiting = NewestQueue[_ReceivedMessage](_WAITING)
        session = Ros2Session(self._address)
        try:
            session.subscribe(
                self._address.name,
                CLOUD,
                lambda sample: waiting.put(_ReceivedMessage(sample, time.monotonic())),
            )
            quiet_from_s = time.monotonic()
            while not stop.is_set():
                came = waiting.take(_WAIT_S)
                now_s = time.monotonic()
                if came is not None:
                    quiet_from_s = now_s
                    yield self._arrival(came)
                elif now_s - quiet_from_s > _SILENCE_S:
                    self._say(self._silence(session))
                    quiet_from_s = now_s
                if waiting.dropped:
                    self._say(f"{self.name}: {waiting.dropped} messages were dropped before decoding")
        finally:
            session.close()

    def _arrival(self, came: _ReceivedMessage) -> Arrival | DataError:
        time_ns = sent_ns(came.sample) or time.time_ns()
        try:
            found = self._decode(came.sample.payload.to_bytes(), time_ns)
        except DataError as error:
            return error
        position, self._position = self._position, self._position + 1
        name = f"{self._address.name}-{position:06d}"
        return Arrival(name, position, found.cloud, came.arrived_s, found.frame_id)

    def _silence(self, session: Ros2Session) -> str:
        topics = session.published(CLOUD)
        if self._address.name in topics:
            return f"{self.name}: no point cloud for {_SILENCE_S:g} s, although there is a publisher"
        others = f"point clouds are on {', '.join(topics)}" if topics else "no node publishes point clouds"
        return f"{self.name}: no point cloud for {_SILENCE_S:g} s; {others} in domain {self._address.domain}"
