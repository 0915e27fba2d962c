"""Recordings written by rosbags' own writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECOND_NS = 10**9
#: ``sensor_msgs/PointField``: kinds of numbers and their codes.
DATATYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
Sent = tuple[str, int, Any]


class RosMessages:
    """Builds messages of ROS 2 Humble."""

    def __init__(self) -> None:
        from rosbags.typesys import Stores, get_typestore

        self.store = get_typestore(Stores.ROS2_HUMBLE)
        self.types = self.store.types

    def header(self, time_ns: int, frame_id: str) -> Any:
        stamp = self.types["builtin_interfaces/msg/Time"](time_ns // SECOND_NS, time_ns % SECOND_NS)
        return self.types["std_msgs/msg/Header"](stamp, frame_id)

    def cloud(
        self,
        columns: dict[str, np.ndarray],
        *,
        time_ns: int = 5 * SECOND_NS,
        frame_id: str = "lidar",
        big_endian: bool = False,
        padding: Sequence[int] = (),
        height: int = 1,
        row_padding: int = 0,
        **changed: Any,
    ) -> Any:
        """Columns in the order given, with so many unused bytes in front of each (and after the last)."""
        order = ">" if big_endian else "<"
        gaps = [*padding, *[0] * (len(columns) + 1 - len(padding))]
        fields, offset = [], 0
        for (name, values), gap in zip(columns.items(), gaps, strict=False):
            offset += gap
            kind = f"{values.dtype.kind}{values.dtype.itemsize}"
            fields.append(self.types["sensor_msgs/msg/PointField"](name, offset, DATATYPES[kind], 1))
            offset += values.dtype.itemsize
        step = offset + gaps[len(columns)]
        count = len(next(iter(columns.values())))
        table = np.full((count, step), 0xAB, np.uint8)
        for field, values in zip(fields, columns.values(), strict=True):
            swapped = np.ascontiguousarray(values, values.dtype.newbyteorder(order))
            size = values.dtype.itemsize
            table[:, field.offset : field.offset + size] = swapped.view(np.uint8).reshape(count, size)
        width = count // height
        rows = np.full((height, width * step + row_padding), 0xCD, np.uint8)
        rows[:, : width * step] = table.reshape(height, width * step)
        made = {
            "header": self.header(time_ns, frame_id),
            "height": height,
            "width": width,
            "fields": fields,
            "is_bigendian": big_endian,
            "point_step": step,
            "row_step": rows.shape[1],
            "data": rows.reshape(-1),
            "is_dense": False,
        }
        return self.types["sensor_msgs/msg/PointCloud2"](**{**made, **changed})

    def transform(self, time_ns: int, parent: str, child: str, xyz: Sequence[float], yaw: float = 0.0) -> Any:
        moved = self.types["geometry_msgs/msg/Vector3"](*xyz)
        made = self.types["geometry_msgs/msg/Transform"](moved, self._turn(yaw))
        return self.types["geometry_msgs/msg/TransformStamped"](self.header(time_ns, parent), child, made)

    def tf(self, *transforms: Any) -> Any:
        return self.types["tf2_msgs/msg/TFMessage"](list(transforms))

    def pose(self, time_ns: int, xyz: Sequence[float], yaw: float = 0.0) -> Any:
        return self.types["geometry_msgs/msg/PoseStamped"](self.header(time_ns, "map"), self._pose(xyz, yaw))

    def odometry(self, time_ns: int, xyz: Sequence[float], yaw: float = 0.0, child: str = "base") -> Any:
        spread = np.zeros(36)
        pose = self.types["geometry_msgs/msg/PoseWithCovariance"](self._pose(xyz, yaw), spread)
        zero = self.types["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0)
        twist = self.types["geometry_msgs/msg/TwistWithCovariance"](
            self.types["geometry_msgs/msg/Twist"](zero, zero), spread
        )
        return self.types["nav_msgs/msg/Odometry"](self.header(time_ns, "odom"), child, pose, twist)

    def _pose(self, xyz: Sequence[float], yaw: float) -> Any:
        return self.types["geometry_msgs/msg/Pose"](
            self.types["geometry_msgs/msg/Point"](*xyz), self._turn(yaw)
        )

    def _turn(self, yaw: float) -> Any:
        return self.types["geometry_msgs/msg/Quaternion"](0.0, 0.0, np.sin(yaw / 2), np.cos(yaw / 2))

    def write(self, path: Path, sent: Sequence[Sent], *, mcap: bool = False, compressed: str = "") -> Path:
        """A folder with metadata.yaml, of (topic, time of the recording, message)."""
        from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

        plugin = StoragePlugin.MCAP if mcap else StoragePlugin.SQLITE3
        writer = Writer(path, version=9, storage_plugin=plugin)
        if compressed:
            writer.set_compression(CompressionMode[compressed.upper()], CompressionFormat.ZSTD)
        with writer:
            connections = {
                topic: writer.add_connection(topic, message.__msgtype__, typestore=self.store)
                for topic, message in {topic: message for topic, _, message in sent}.items()
            }
            for topic, time_ns, message in sent:
                writer.write(connections[topic], time_ns, self.serialised(message))
        return path

    def serialised(self, message: Any) -> bytes:
        return bytes(self.store.serialize_cdr(message, message.__msgtype__))

    def columns(self, count: int, seed: int = 0, *, intensity: str = "intensity") -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        made = {name: random.normal(0.0, 20.0, count).astype(np.float32) for name in "xyz"}
        if intensity:
            made[intensity] = random.uniform(0.0, 1.0, count).astype(np.float32)
        return made


@pytest.fixture(scope="session")
def ros_messages() -> RosMessages:
    """Builder and writer of recordings; skips where rosbags is not installed."""
    pytest.importorskip("rosbags")
    return RosMessages()


@pytest.fixture
def single_file() -> Callable[[Path], Path]:
    """The one storage file in the folder of a bag."""

    def find(folder: Path) -> Path:
        (found,) = [path for path in folder.iterdir() if path.suffix in (".mcap", ".db3")]
        return found

    return find
