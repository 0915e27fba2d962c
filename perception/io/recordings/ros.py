"""ROS messages, decoded without ROS: point clouds, poses and transforms."""

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
    """Decode a ``sensor_msgs/PointCloud2`` of ROS 2 or ROS 1.

    Raises:
        DataError: decoding failed; ``place`` goes into the message.
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
    """Decode the transforms of an odometry, pose or tf message.

    A pose without a child frame describes the robot, whose frame is then ``""``.

    Raises:
        DataError: decoding failed, or a quaternion is zero; ``place`` goes into the message.
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
            f"{place}: unknown encoding {encoding!r}; expected 'cdr' or 'ros1'. Choose another topic."
        )
    store = _types(encoding)
    decode = store.deserialize_cdr if encoding == "cdr" else store.deserialize_ros1
    try:
        return decode(message.data, message.topic.type)
    except ImportError:
        raise
    except Exception as error:
        # Damaged bytes raise the decoder's own error, struct.error, IndexError, UnicodeError and others.
        raise DataError(
            f"{place}: damaged, {len(message.data)} bytes are not a {message.topic.type}"
            f" ({str(error) or type(error).__name__}). Record it again."
        ) from error


@lru_cache
def _types(encoding: str) -> Any:
    try:
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    except ImportError as error:
        raise ImportError("decoding ROS messages needs rosbags: pip install 'sparsight[ros]'") from error
    # These messages are the same in all releases of ROS 2.
    if encoding == "cdr":
        return get_typestore(Stores.ROS2_HUMBLE)
    store = get_typestore(Stores.ROS1_NOETIC)
    if TRANSFORMS not in store.types:
        # rosbags defines it for ROS 2 only.
        store.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms", TRANSFORMS))
    return store


def _stamp_ns(header: Any, message: BagMessage) -> int:
    """Return the time in the header, or the time of recording if it is zero."""
    stamp = int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)
    return stamp or message.time_ns


def _numbers(point: Any) -> list[float]:
    return [getattr(point, name) for name in ("x", "y", "z", "w") if hasattr(point, name)]
