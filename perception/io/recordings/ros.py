"""ROS messages without ROS: point clouds, poses and transforms."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from perception.errors import DataError
from perception.io.recordings.bags import BagMessage
from perception.io.recordings.packed import PackedCloud, PackedField
from perception.io.recordings.stamped import StampedCloud, StampedTransform, rigid

CLOUD = "sensor_msgs/msg/PointCloud2"
ODOMETRY = "nav_msgs/msg/Odometry"
POSES = ("geometry_msgs/msg/PoseStamped", "geometry_msgs/msg/PoseWithCovarianceStamped")
TRANSFORMS = "tf2_msgs/msg/TFMessage"
#: ``sensor_msgs/msg/PointField``: INT8 = 1 to FLOAT64 = 8.
_DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


def ros_cloud(message: BagMessage, place: str) -> StampedCloud:
    """A ``sensor_msgs/PointCloud2``.

    Args:
        message: of that type, from ROS 2 or ROS 1.
        place: recording, topic and message, for errors.

    Raises:
        DataError: it cannot be decoded.
    """
    found = _decoded(message, place)
    order = ">" if found.is_bigendian else "<"
    fields = [
        PackedField(
            field.name,
            np.dtype(order + _DATATYPES[field.datatype]) if field.datatype in _DATATYPES else None,
            field.offset,
            field.count,
        )
        for field in found.fields
    ]
    packed = PackedCloud(
        fields, found.width, found.height, found.point_step, found.row_step, np.asarray(found.data, np.uint8)
    )
    return StampedCloud(packed.to_raw(place), _stamp_ns(found.header, message), found.header.frame_id)


def ros_transforms(message: BagMessage, place: str) -> list[StampedTransform]:
    """What an odometry, a pose or a tf message says about frames.

    A pose without a frame of its own is one of the robot, whose frame is then ``""``.

    Args:
        message: of one of the types of this module.
        place: recording, topic and message, for errors.

    Raises:
        DataError: it cannot be decoded, or a rotation has no length.
    """
    found = _decoded(message, place)
    if message.topic.type == TRANSFORMS:
        return [
            StampedTransform(
                one.header.frame_id.lstrip("/"),
                one.child_frame_id.lstrip("/"),
                _stamp_ns(one.header, message),
                *rigid(_numbers(one.transform.translation), _numbers(one.transform.rotation), place),
            )
            for one in found.transforms
        ]
    pose = found.pose if message.topic.type == POSES[0] else found.pose.pose
    child = found.child_frame_id.lstrip("/") if message.topic.type == ODOMETRY else ""
    return [
        StampedTransform(
            found.header.frame_id.lstrip("/") or "map",
            child,
            _stamp_ns(found.header, message),
            *rigid(_numbers(pose.position), _numbers(pose.orientation), place),
        )
    ]


def _decoded(message: BagMessage, place: str) -> Any:
    encoding = message.topic.encoding
    if encoding not in ("cdr", "ros1"):
        raise DataError(
            f"{place}: messages are encoded as {encoding or 'nothing known'!r}; expected 'cdr' or 'ros1'"
        )
    store = _types(encoding)
    decode = store.deserialize_cdr if encoding == "cdr" else store.deserialize_ros1
    try:
        return decode(message.data, message.topic.type)
    except ImportError:
        raise
    except Exception as error:
        # Whatever the bytes make the decoder stumble over: its own error, struct.error, IndexError, Unicode.
        raise DataError(
            f"{place}: damaged, {len(message.data)} bytes are no {message.topic.type}"
            f" ({str(error) or type(error).__name__}); record it again"
        ) from error


@lru_cache
def _types(encoding: str) -> Any:
    try:
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    except ImportError as error:
        raise ImportError("decoding ROS messages needs rosbags: pip install 'sparsight[ros]'") from error
    # The messages read here have not changed in any ROS 2.
    if encoding == "cdr":
        return get_typestore(Stores.ROS2_HUMBLE)
    store = get_typestore(Stores.ROS1_NOETIC)
    if TRANSFORMS not in store.types:
        # rosbags has it among the types of ROS 2 only.
        store.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms", TRANSFORMS))
    return store


def _stamp_ns(header: Any, message: BagMessage) -> int:
    """Time in the header; that of the recording where the driver left it empty."""
    stamp = int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)
    return stamp or message.time_ns


def _numbers(point: Any) -> list[float]:
    return [getattr(point, name) for name in ("x", "y", "z", "w") if hasattr(point, name)]
