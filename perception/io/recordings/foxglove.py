"""Foxglove's messages in MCAP files: point clouds, transforms and poses, as Protocol Buffers or JSON.

Follows Foxglove's published schemas (foxglove.PointCloud, FrameTransform, FrameTransforms, PoseInFrame).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from perception.errors import DataError
from perception.io.raw import RawCloud, as_float32
from perception.io.recordings.bags import BagMessage
from perception.io.recordings.packed import PackedCloud, PackedField
from perception.io.recordings.stamped import StampedCloud, StampedTransform, rigid
from perception.io.recordings.wire import Value, content, double, number, read_message, submessages

CLOUD = "foxglove.PointCloud"
POSE = "foxglove.PoseInFrame"
TRANSFORMS = ("foxglove.FrameTransform", "foxglove.FrameTransforms")
#: ``PackedElementField.type``: UINT8 = 1 to FLOAT64 = 8; always little-endian.
_DATATYPES = {1: "u1", 2: "i1", 3: "<u2", 4: "<i2", 5: "<u4", 6: "<i4", 7: "<f4", 8: "<f8"}
_Message = dict[int, list[Value]]
_Transform = tuple[str, str, int, list[float], list[float]]


def foxglove_cloud(message: BagMessage, place: str) -> StampedCloud:
    """Decode a ``foxglove.PointCloud`` and apply its pose.

    Raises:
        DataError: decoding failed; ``place`` goes into the message.
    """
    record = _decoded(message, place, _cloud_record)
    data = np.frombuffer(record["data"], np.uint8)
    stride = record["point_stride"]
    if stride < 1:
        raise DataError(
            f"{place}: point_stride is {stride}; expected the bytes per point. Correct the program that"
            " wrote it."
        )
    count = len(data) // stride
    fields = [
        PackedField(name, None if kind not in _DATATYPES else np.dtype(_DATATYPES[kind]), offset)
        for name, offset, kind in record["fields"]
    ]
    raw = PackedCloud(fields, count, 1, stride, count * stride, data).to_raw(place)
    position, quaternion = record["pose"]
    moved, turned = rigid(position, quaternion, place)
    if moved.any() or abs(turned[3]) < 1.0:
        # Huge numbers and signalling NaN pass without a warning.
        with np.errstate(over="ignore", invalid="ignore"):
            xyz = Rotation.from_quat(turned).apply(raw.xyz.astype(np.float64)) + moved
        raw = RawCloud(as_float32(xyz), raw.intensity)
    return StampedCloud(raw, record["time_ns"] or message.time_ns, record["frame_id"])


def foxglove_transforms(message: BagMessage, place: str) -> list[StampedTransform]:
    """Decode a transform, a list of transforms, or a pose.

    Raises:
        DataError: decoding failed, or a quaternion is zero; ``place`` goes into the message.
    """
    made = _decoded(message, place, lambda data: _transform_records(message.topic.type, data))
    return [
        StampedTransform(parent, child, time_ns or message.time_ns, *rigid(moved, turned, place))
        for parent, child, time_ns, moved, turned in made
    ]


def _decoded(message: BagMessage, place: str, read: Callable[[Any], Any]) -> Any:
    encoding = message.topic.encoding
    if encoding not in ("protobuf", "json"):
        raise DataError(
            f"{place}: unknown encoding {encoding!r}; expected 'protobuf' or 'json'. Choose another topic."
        )
    try:
        return read(read_message(message.data) if encoding == "protobuf" else json.loads(message.data))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{place}: damaged, {len(message.data)} bytes are not a {message.topic.type} ({error}). Record it"
            " again."
        ) from error


def _cloud_record(found: Any) -> dict[str, Any]:
    if found and isinstance(next(iter(found)), str):
        return {
            "time_ns": _json_time(found),
            "frame_id": str(found.get("frame_id", "")),
            "pose": _json_pose(found.get("pose") or {}),
            "point_stride": int(found["point_stride"]),
            "fields": [(str(f["name"]), int(f.get("offset", 0)), int(f["type"])) for f in found["fields"]],
            "data": base64.b64decode(found["data"], validate=True),
        }
    return {
        "time_ns": _time(found, 1),
        "frame_id": content(found, 2).decode(),
        "pose": _pose(read_message(content(found, 3))),
        "point_stride": number(found, 4),
        "fields": [(content(f, 1).decode(), number(f, 2), number(f, 3)) for f in submessages(found, 5)],
        "data": content(found, 6),
    }


def _transform_records(kind: str, found: Any) -> list[_Transform]:
    if found and isinstance(next(iter(found)), str):
        return _json_transforms(kind, found)
    if kind == TRANSFORMS[1]:
        return [one for part in submessages(found, 1) for one in _transform_records(TRANSFORMS[0], part)]
    parent = content(found, 2).decode() or "map"
    if kind == POSE:
        return [(parent, "", _time(found, 1), *_pose(read_message(content(found, 3))))]
    pose: _Message = {1: found.get(4, [b""]), 2: found.get(5, [b""])}
    return [(parent, content(found, 3).decode(), _time(found, 1), *_pose(pose))]


def _json_transforms(kind: str, found: dict[str, Any]) -> list[_Transform]:
    if kind == TRANSFORMS[1]:
        return [one for part in found["transforms"] for one in _json_transforms(TRANSFORMS[0], part)]
    if kind == POSE:
        return [(str(found["frame_id"]) or "map", "", _json_time(found), *_json_pose(found["pose"]))]
    pose = {"position": found.get("translation"), "orientation": found.get("rotation")}
    parent, child = str(found["parent_frame_id"]), str(found["child_frame_id"])
    return [(parent, child, _json_time(found), *_json_pose(pose))]


def _time(message: _Message, field: int) -> int:
    stamp = read_message(content(message, field))
    return number(stamp, 1) * 1_000_000_000 + number(stamp, 2)


def _pose(message: _Message) -> tuple[list[float], list[float]]:
    """Return position and quaternion; the default is the identity."""
    position, turn = (read_message(content(message, field)) for field in (1, 2))
    quaternion = [double(turn, field) for field in (1, 2, 3, 4)] if turn else [0.0, 0.0, 0.0, 1.0]
    return [double(position, field) for field in (1, 2, 3)], quaternion


def _json_time(found: dict[str, Any]) -> int:
    stamp = found.get("timestamp") or {}
    return int(stamp.get("sec", 0)) * 1_000_000_000 + int(stamp.get("nsec", 0))


def _json_pose(pose: dict[str, Any]) -> tuple[list[float], list[float]]:
    position = pose.get("position") or {}
    turn = pose.get("orientation") or {"w": 1.0}
    return (
        [float(position.get(name, 0.0)) for name in "xyz"],
        [float(turn.get(name, 0.0)) for name in "xyzw"],
    )
