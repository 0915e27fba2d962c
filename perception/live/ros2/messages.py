"""Decoding of point clouds, and encoding of boxes and markers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from perception.io.recordings import ros
from perception.io.recordings.bag_scans import DecodedCloud, decode_cloud
from perception.io.recordings.bags import BagMessage, Topic
from perception.io.transform import ScanTransform
from perception.track import Tracks

CLOUD = ros.CLOUD
DETECTIONS = "vision_msgs/msg/Detection3DArray"
MARKERS = "visualization_msgs/msg/MarkerArray"
#: The parts of a Detection3DArray in vision_msgs 4 (https://github.com/ros-perception/vision_msgs).
_VISION = {
    "ObjectHypothesis": "string class_id\nfloat64 score",
    "ObjectHypothesisWithPose": "ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose",
    "BoundingBox3D": "geometry_msgs/Pose center\ngeometry_msgs/Vector3 size",
    "Detection3D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox3D bbox\n"
    "string id",
    "Detection3DArray": "std_msgs/Header header\nDetection3D[] detections",
}
#: visualization_msgs/Marker: kinds and actions.
_CUBE, _ADD, _DELETE_ALL = 1, 0, 3
_COLOUR = (0.0, 1.0, 0.0, 0.4)


class MessageObject(NamedTuple):
    """An object for ``vision_msgs/Detection3D`` and ``visualization_msgs/Marker``, in metres.

    Attributes:
        number: track id.
        label, score: class and score.
        centre, size: x, y, z; length, width, height.
        turn: quaternion x, y, z, w.
        variance_m2: variance of the centre along each axis.
    """

    number: int
    label: str
    score: float
    centre: tuple[float, float, float]
    size: tuple[float, float, float]
    turn: tuple[float, float, float, float]
    variance_m2: float


def described(tracks: Tracks, rotation: npt.NDArray[np.float64] | None = None) -> Iterator[MessageObject]:
    """Yield the tracks that are observed now.

    Args:
        tracks: tracks in the LiDAR frame.
        rotation: (3, 3) float64 lidar_from_sensor; boxes are converted to the sensor's axes.
    """
    back = Rotation.identity() if rotation is None else Rotation.from_matrix(rotation).inv()
    variances = tracks.covariance[:, 0, 0].tolist()
    rows = zip(tracks.track_id.tolist(), tracks, tracks.row.tolist(), variances, strict=True)
    for number, (box, score, label), row, variance_m2 in rows:
        if row >= 0:
            x, y, z = back.apply(box[:3].astype(np.float64)).tolist()
            length, width, height, yaw = map(float, box[3:])
            a, b, c, d = (back * Rotation.from_euler("z", yaw)).as_quat(canonical=True).tolist()
            size, turn = (length, width, height), (a, b, c, d)
            yield MessageObject(number, label, float(score), (x, y, z), size, turn, variance_m2)


class CloudDecoder:
    """Decoder of serialised ``sensor_msgs/PointCloud2``.

    Args:
        topic: topic, for errors.
        transform: as for ``load_point_cloud``.
    """

    def __init__(self, topic: str, transform: ScanTransform | None = None) -> None:
        self._topic, self._transform = Topic(topic, CLOUD, "cdr", 0), transform or ScanTransform()
        self._divisor = 1.0

    def __call__(self, data: bytes, time_ns: int) -> DecodedCloud:
        """Decode a message.

        Args:
            data: serialised message.
            time_ns: time of arrival, for headers without a time.

        Raises:
            DataError: the message is damaged.
        """
        message = BagMessage(self._topic, time_ns, data)
        found = decode_cloud(message, self._topic.name, self._divisor, self._transform)
        self._divisor = found.divisor
        return found


def type_hash(kind: str) -> str:
    """Return the hash of a message type (REP 2011), used since Iron."""
    return str(_types().hash_rihs01(kind))


def detections_message(objects: list[MessageObject], frame_id: str, time_ns: int) -> bytes:
    """Serialise a ``vision_msgs/Detection3DArray``; ids are track ids."""
    types, header = _types().types, _header(frame_id, time_ns)
    detections = []
    for item in objects:
        # Row-major 6 x 6 of position and rotation; the uncertainty of the rotation is not reported.
        covariance = np.zeros(36)
        covariance[[0, 7, 14]] = item.variance_m2
        pose = _pose(item.centre, item.turn)
        result = types["vision_msgs/msg/ObjectHypothesisWithPose"](
            types["vision_msgs/msg/ObjectHypothesis"](item.label, item.score),
            types["geometry_msgs/msg/PoseWithCovariance"](pose, covariance),
        )
        box = types["vision_msgs/msg/BoundingBox3D"](pose, types["geometry_msgs/msg/Vector3"](*item.size))
        detections.append(types["vision_msgs/msg/Detection3D"](header, [result], box, str(item.number)))
    return _serialised(types[DETECTIONS](header, detections))


def markers_message(objects: list[MessageObject], frame_id: str, time_ns: int) -> bytes:
    """Serialise a ``visualization_msgs/MarkerArray`` that replaces all markers by a cube per object."""
    header, nowhere, unturned = _header(frame_id, time_ns), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)
    markers = [_marker(header, 0, _DELETE_ALL, _pose(nowhere, unturned), nowhere)]
    markers += [
        _marker(header, item.number % 2**31, _ADD, _pose(item.centre, item.turn), item.size)
        for item in objects
    ]
    return _serialised(_types().types[MARKERS](markers))


def _marker(header: Any, number: int, action: int, pose: Any, size: tuple[float, float, float]) -> Any:
    types, nothing = _types().types, np.zeros(0, np.uint8)
    return types["visualization_msgs/msg/Marker"](
        header=header, ns="tracks", id=number, type=_CUBE, action=action, pose=pose,
        scale=types["geometry_msgs/msg/Vector3"](*size), color=types["std_msgs/msg/ColorRGBA"](*_COLOUR),
        lifetime=types["builtin_interfaces/msg/Duration"](0, 0), frame_locked=False, points=[], colors=[],
        texture_resource="", texture=types["sensor_msgs/msg/CompressedImage"](header, "", nothing),
        uv_coordinates=[], text="", mesh_resource="",
        mesh_file=types["visualization_msgs/msg/MeshFile"]("", nothing), mesh_use_embedded_materials=False,
    )  # fmt: skip


def _header(frame_id: str, time_ns: int) -> Any:
    types = _types().types
    stamp = types["builtin_interfaces/msg/Time"](*divmod(time_ns, 1_000_000_000))
    return types["std_msgs/msg/Header"](stamp, frame_id)


def _pose(centre: tuple[float, float, float], turn: tuple[float, float, float, float]) -> Any:
    types = _types().types
    point, quaternion = types["geometry_msgs/msg/Point"], types["geometry_msgs/msg/Quaternion"]
    return types["geometry_msgs/msg/Pose"](point(*centre), quaternion(*turn))


def _serialised(message: Any) -> bytes:
    return bytes(_types().serialize_cdr(message, message.__msgtype__))


@lru_cache
def _types() -> Any:
    try:
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    except ImportError as error:
        raise ImportError("messages of ROS need rosbags: pip install 'sparsight[ros2]'") from error
    # These have the same hashes from Humble to Lyrical.
    store = get_typestore(Stores.ROS2_HUMBLE)
    given: dict[str, Any] = {}
    for name, definition in _VISION.items():
        given.update(get_types_from_msg(definition, f"vision_msgs/msg/{name}"))
    store.register(given)
    return store
