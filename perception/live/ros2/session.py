"""A node of ROS 2 in a network of Zenoh, as the middleware rmw_zenoh sees one.

Topics are keys ``DOMAIN/TOPIC/TYPE/HASH``, messages CDR with a number, a time and the sender's identity
attached; nodes, publishers and subscriptions announce themselves by tokens under ``@ros2_lv``
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
#: Reliability:durability:history,depth:deadline:lifespan:liveliness; an empty one is the usual one.
_RELIABLE, _BEST_EFFORT = "::,10:,:,:,,", "2::,5:,:,:,,"
#: What is attached: number and time of a message, and the sender's identity after its length.
_ATTACHED, _IDENTITY = struct.Struct("<qqB"), 16
_ASKING_S = 1.0


class Ros2Session:
    """A connection to a router, and a node in its graph. It goes on by itself when the router comes back.

    Args:
        address: of the router and the domain.
        node: its name.

    Raises:
        ImportError: eclipse-zenoh or rosbags is missing; the message names the extra.
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
                f"no router of Zenoh at {address.host}:{address.port}; start one beside the robot's nodes:"
                " ros2 run rmw_zenoh_cpp rmw_zenohd"
            ) from error
        self._entities = itertools.count()
        self._prefix = f"{_TOKENS}/{address.domain}/{self._session.info.zid()}/0"
        self._tokens = [self._token(f"{next(self._entities)}/NN/%/%/{node}")]

    def subscribe(self, topic: str, kind: str, take: Callable[[Any], None]) -> None:
        """Have every message of a topic, of any distribution.

        Args:
            topic: with a slash before it.
            kind: such as ``"sensor_msgs/msg/PointCloud2"``.
            take: called with a sample of Zenoh, from a thread of its own.
        """
        self._announce("MS", topic, kind, _BEST_EFFORT)
        self._session.declare_subscriber(f"{self._address.domain}{topic}/{_dds(kind)}/*", take)

    def publisher(self, topic: str, kind: str) -> Callable[[bytes], None]:
        """What publishes serialised messages on a topic; it never waits."""
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
        """Names of the topics with messages of a type that somebody publishes now."""
        asked = f"{_TOKENS}/{self._address.domain}/*/*/*/MP/*/*/*/*/{_dds(kind)}/*/*"
        replies = self._session.liveliness().get(asked, timeout=_ASKING_S)
        keys = {str(reply.ok.key_expr) for reply in replies if reply.ok is not None}
        return sorted({key.split("/")[9].replace("%", "/") for key in keys})

    def close(self) -> None:
        """Leave the graph."""
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
    """When a message was sent, as its sender attached it."""
    attached = b"" if sample.attachment is None else sample.attachment.to_bytes()
    if len(attached) != _ATTACHED.size + _IDENTITY:
        return None
    return int(_ATTACHED.unpack_from(attached)[1])


def zenoh_library() -> Any:
    """The module.

    Raises:
        ImportError: it is missing; the message names the extra.
    """
    try:
        import zenoh
    except ImportError as error:
        raise ImportError("topics of ROS 2 need eclipse-zenoh: pip install 'sparsight[ros2]'") from error
    return zenoh


def _dds(kind: str) -> str:
    """A type as keys name it: ``sensor_msgs::msg::dds_::PointCloud2_``."""
    package, _, name = kind.split("/")
    return f"{package}::msg::dds_::{name}_"
