"""A ROS 2 node in a Zenoh network, compatible with the middleware rmw_zenoh.

Topics are keys ``DOMAIN/TOPIC/TYPE/HASH``. Messages are CDR, with sequence number, time and sender attached.
Nodes, publishers and subscriptions announce themselves by tokens under ``@ros2_lv``
(https://github.com/ros2/rmw_zenoh, docs/design.md).
"""

from __future__ import annotations

import itertools
import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

from perception.live.ros2.address import Ros2Address
from perception.live.ros2.messages import type_hash

_TOKENS = "@ros2_lv"
#: Reliability:durability:history,depth:deadline:lifespan:liveliness; empty means the default.
_RELIABLE, _BEST_EFFORT = "::,10:,:,:,,", "2::,5:,:,:,,"
#: Attachment: sequence number, time, and the sender's identity after its length.
_ATTACHED, _IDENTITY = struct.Struct("<qqB"), 16
_ASKING_S = 1.0


class Ros2Session:
    """A connection to a router and a node in its graph; it reconnects by itself.

    Args:
        address: router and domain.
        node: name of the node.

    Raises:
        ImportError: eclipse-zenoh or rosbags is missing; the message has the pip command.
        OSError: there is no router.
    """

    def __init__(self, address: Ros2Address, node: str = "sparsight") -> None:
        self._zenoh, self._address, self._node = zenoh_library(), address, node
        config = self._zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", f'["{address.endpoint}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        try:
            self._session = self._zenoh.open(config)
        except self._zenoh.ZError as error:
            raise OSError(
                f"no Zenoh router at {address.host}:{address.port}. Start one next to the robot's nodes:"
                " ros2 run rmw_zenoh_cpp rmw_zenohd"
            ) from error
        self._entities = itertools.count()
        self._prefix = f"{_TOKENS}/{address.domain}/{self._session.info.zid()}/0"
        self._tokens = [self._token(f"{next(self._entities)}/NN/%/%/{node}")]

    def subscribe(self, topic: str, kind: str, take: Callable[[Any], None]) -> None:
        """Subscribe to a topic, of any distribution.

        Args:
            topic: name with a leading slash.
            kind: type, such as ``"sensor_msgs/msg/PointCloud2"``.
            take: called with samples of Zenoh, from another thread.
        """
        self._announce("MS", topic, kind, _BEST_EFFORT)
        self._session.declare_subscriber(f"{self._address.domain}{topic}/{_dds(kind)}/*", take)

    def publisher(self, topic: str, kind: str) -> Callable[[bytes], None]:
        """Return a function that publishes serialised messages on a topic without waiting."""
        self._announce("MP", topic, kind, _RELIABLE)
        key = f"{self._address.domain}{topic}/{_dds(kind)}/{self._hash(kind)}"
        publisher = self._session.declare_publisher(
            key, congestion_control=self._zenoh.CongestionControl.DROP
        )
        numbers, identity = itertools.count(1), uuid.uuid4().bytes

        def publish(data: bytes) -> None:
            attached = _ATTACHED.pack(next(numbers), time.time_ns(), len(identity)) + identity
            publisher.put(data, attachment=attached)

        return publish

    def published(self, kind: str) -> list[str]:
        """Return the names of the topics of a type with a publisher."""
        asked = f"{_TOKENS}/{self._address.domain}/*/*/*/MP/*/*/*/*/{_dds(kind)}/*/*"
        replies = self._session.liveliness().get(asked, timeout=_ASKING_S)
        keys = {str(reply.ok.key_expr) for reply in replies if reply.ok is not None}
        return sorted({key.split("/")[9].replace("%", "/") for key in keys})

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _announce(self, what: str, topic: str, kind: str, quality: str) -> None:
        name = topic.replace("/", "%")
        about = f"{name}/{_dds(kind)}/{self._hash(kind)}/{quality}"
        self._tokens.append(self._token(f"{next(self._entities)}/{what}/%/%/{self._node}/{about}"))

    def _token(self, text: str) -> Any:
        return self._session.liveliness().declare_token(f"{self._prefix}/{text}")

    def _hash(self, kind: str) -> str:
        return "TypeHashNotSupported" if self._address.distro == "humble" else type_hash(kind)


def sent_ns(sample: Any) -> int | None:
    """Return the time of sending in a message's attachment, or None."""
    attached = b"" if sample.attachment is None else sample.attachment.to_bytes()
    if len(attached) != _ATTACHED.size + _IDENTITY:
        return None
    return int(_ATTACHED.unpack_from(attached)[1])


def zenoh_library() -> Any:
    """Import zenoh; raise ``ImportError`` with the pip command if it is missing."""
    try:
        import zenoh
    except ImportError as error:
        raise ImportError("topics of ROS 2 need eclipse-zenoh: pip install 'sparsight[ros2]'") from error
    return zenoh


def _dds(kind: str) -> str:
    """Return a type's name in keys: ``sensor_msgs::msg::dds_::PointCloud2_``."""
    package, _, name = kind.split("/")
    return f"{package}::msg::dds_::{name}_"
