"""Recording of scans, boxes and memories for Foxglove, as an MCAP file or live.

Topics in frame ``lidar``: ``/points`` (foxglove.PointCloud), ``/detections`` and ``/ground_truth``
(foxglove.SceneUpdate). Topics in frame ``map``: ``/tf`` (foxglove.FrameTransforms), ``/pose``
(foxglove.PoseInFrame), ``/trajectory`` (foxglove.PosesInFrame), ``/memories`` and ``/trails`` of tracks
(foxglove.SceneUpdate). JSON topics: ``/numbers`` and ``/tracks`` (``track_id`` and the other fields of
``detections.jsonl``). Foxglove's SDK encodes the messages; the same scans give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb
from scipy.spatial.transform import Rotation

from perception.track.tracks import Tracks
from perception.types import LIDAR_FRAME, Boxes3D, Detections, PointCloud
from perception.visualise.foxglove_sinks import MessageSink, Schema, import_foxglove
from perception.visualise.palette import GROUND_TRUTH, class_colour
from perception.visualise.recording import Mark, PoseTrail, RecordingMoment, height_colours
from perception.visualise.scene import DrawnBoxes, detected, finite_points, labelled
from perception.visualise.trails import Trails

MAP_FRAME = "map"
_FIELDS = ("x", "y", "z", "intensity")
_TRACK_FIELDS = ("track_id", "labels", "scores", "boxes", "velocity", "moving", "hits", "missed_s")
_TRACKS_SCHEMA = {"type": "object", "properties": {name: {"type": "array"} for name in _TRACK_FIELDS}}
_NUMBERS_SCHEMA = {"type": "object", "additionalProperties": {"type": "number"}}
_GLASS = 0.35


class FoxgloveRecording:
    """Encoder of Foxglove messages; see :class:`perception.visualise.recording.Recording`.

    Args:
        sink: receives the messages; closed with the recording.

    Raises:
        ImportError: the Foxglove SDK is missing.
    """

    def __init__(self, sink: MessageSink) -> None:
        self._messages = import_foxglove("recording for Foxglove").messages
        self._sink = sink
        self._trajectory, self._trails = PoseTrail(), Trails()

    def scan(
        self,
        cloud: PointCloud,
        detections: Detections,
        moment: RecordingMoment,
        *,
        map_from_lidar: npt.NDArray[np.float64] | None = None,
        ground_truth: Boxes3D | None = None,
    ) -> None:
        """Record a scan with its detections; points that are not finite are skipped."""
        if map_from_lidar is not None:
            self._pose(map_from_lidar, moment)
        self._send("/points", self._points(cloud, moment), moment)
        found = detected(detections)
        self._send("/detections", self._boxes("detections", found, moment), moment)
        if isinstance(detections, Tracks):
            self._tracks(detections, moment)
        if ground_truth is not None:
            truth = self._boxes("ground_truth", labelled(ground_truth), moment)
            self._send("/ground_truth", truth, moment)

    def marks(self, marks: Sequence[Mark], moment: RecordingMoment) -> None:
        """Record all current marks as one entity that replaces the previous one."""
        messages = self._messages
        cubes, spheres, texts = [], [], []
        for mark in marks:
            colour = self._colour(mark.colour, 0.25 if mark.gone else 0.6)
            pose = self._planar(mark.position, mark.yaw)
            size = mark.size_m if any(mark.size_m) else (0.5, 0.5, 0.5)
            extent = messages.Vector3(x=size[0], y=size[1], z=size[2])
            if any(mark.size_m):
                cubes.append(messages.CubePrimitive(pose=pose, size=extent, color=colour))
            else:
                spheres.append(messages.SpherePrimitive(pose=pose, size=extent, color=colour))
            above = (mark.position[0], mark.position[1], mark.position[2] + size[2])
            texts.append(self._text(mark.text, above, mark.colour))
        entity = messages.SceneEntity(
            timestamp=self._time(moment),
            frame_id=MAP_FRAME,
            id="memories",
            cubes=cubes,
            spheres=spheres,
            texts=texts,
        )
        self._send("/memories", messages.SceneUpdate(entities=[entity]), moment)

    def numbers(self, values: Mapping[str, float], moment: RecordingMoment) -> None:
        """Record figures to plot over time."""
        plain = {name: float(value) for name, value in values.items()}
        self._send_json("/numbers", "Numbers", _NUMBERS_SCHEMA, plain, moment)

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    def _tracks(self, tracks: Tracks, moment: RecordingMoment) -> None:
        """Record all fields of tracks, and their trails."""
        messages = self._messages
        self._trails.add(tracks)
        record = tracks.to_dict()
        self._send_json(
            "/tracks", "Tracks", _TRACKS_SCHEMA, {name: record[name] for name in _TRACK_FIELDS}, moment
        )
        lines = [
            messages.LinePrimitive(
                type=messages.LinePrimitiveLineType.LineStrip,
                thickness=2.0,
                scale_invariant=True,
                points=[messages.Point3(x=x, y=y, z=z) for x, y, z in places.tolist()],
                color=self._colour(to_rgb(class_colour(label).dark), 0.8),
            )
            for places, label in zip(self._trails.in_map(tracks), tracks.labels, strict=True)
        ]
        entity = messages.SceneEntity(
            timestamp=self._time(moment), frame_id=MAP_FRAME, id="trails", lines=lines
        )
        self._send("/trails", messages.SceneUpdate(entities=[entity]), moment)

    def _send_json(
        self, topic: str, name: str, schema: dict[str, Any], values: dict[str, Any], moment: RecordingMoment
    ) -> None:
        known = Schema(name, "jsonschema", json.dumps(schema).encode(), "json")
        self._sink.add(topic, known, json.dumps(values).encode(), moment.at_ns)

    def _send(self, topic: str, message: Any, moment: RecordingMoment) -> None:
        known = type(message).get_schema()
        schema = Schema(known.name, known.encoding, known.data, "protobuf")
        self._sink.add(topic, schema, message.encode(), moment.at_ns)

    def _points(self, cloud: PointCloud, moment: RecordingMoment) -> Any:
        messages = self._messages
        points = finite_points(cloud.points)
        kinds = messages.PackedElementFieldNumericType
        fields = [
            messages.PackedElementField(name=name, offset=4 * place, type=kinds.Float32)
            for place, name in enumerate(_FIELDS)
        ]
        fields += [
            messages.PackedElementField(name=name, offset=16 + place, type=kinds.Uint8)
            for place, name in enumerate(("red", "green", "blue", "alpha"))
        ]
        table = np.full((len(points), 20), 255, np.uint8)
        table[:, :16] = np.ascontiguousarray(points, "<f4").view(np.uint8).reshape(len(points), 16)
        table[:, 16:19] = height_colours(points)
        return messages.PointCloud(
            timestamp=self._time(moment),
            frame_id=LIDAR_FRAME,
            pose=self._planar((0.0, 0.0, 0.0), 0.0),
            point_stride=20,
            fields=fields,
            data=table.tobytes(),
        )

    def _boxes(self, name: str, drawn: DrawnBoxes, moment: RecordingMoment) -> Any:
        """Return one entity that replaces the previous one, so that no old box remains."""
        messages = self._messages
        cubes, texts = [], []
        for box, label, caption in zip(drawn.boxes.tolist(), drawn.labels, drawn.texts, strict=True):
            colour = to_rgb((GROUND_TRUTH if drawn.scores is None else class_colour(label)).dark)
            size = messages.Vector3(x=box[3], y=box[4], z=box[5])
            pose = self._planar((box[0], box[1], box[2]), box[6])
            cubes.append(messages.CubePrimitive(pose=pose, size=size, color=self._colour(colour, _GLASS)))
            texts.append(self._text(caption, (box[0], box[1], box[2] + box[5] / 2 + 0.5), colour))
        entity = messages.SceneEntity(
            timestamp=self._time(moment),
            frame_id=LIDAR_FRAME,
            id=name,
            frame_locked=True,
            cubes=cubes,
            texts=texts,
        )
        return messages.SceneUpdate(entities=[entity])

    def _pose(self, map_from_lidar: npt.NDArray[np.float64], moment: RecordingMoment) -> None:
        messages = self._messages
        self._trajectory.add(map_from_lidar, moment.at_ns)
        moved, turned = self._rigid(map_from_lidar)
        stamp = self._time(moment)
        transform = messages.FrameTransform(
            timestamp=stamp,
            parent_frame_id=MAP_FRAME,
            child_frame_id=LIDAR_FRAME,
            translation=moved,
            rotation=turned,
        )
        self._send("/tf", messages.FrameTransforms(transforms=[transform]), moment)
        here = messages.Pose(position=moved, orientation=turned)
        self._send("/pose", messages.PoseInFrame(timestamp=stamp, frame_id=MAP_FRAME, pose=here), moment)
        rigid = [self._rigid(pose) for _, pose in self._trajectory.poses]
        poses = [messages.Pose(position=moved, orientation=turned) for moved, turned in rigid]
        trajectory = messages.PosesInFrame(timestamp=stamp, frame_id=MAP_FRAME, poses=poses)
        self._send("/trajectory", trajectory, moment)

    def _rigid(self, pose: npt.NDArray[np.float64]) -> tuple[Any, Any]:
        """Return position and rotation of a (4, 4) pose."""
        x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat().tolist()
        px, py, pz = pose[:3, 3].tolist()
        moved = self._messages.Vector3(x=px, y=py, z=pz)
        return moved, self._messages.Quaternion(x=x, y=y, z=z, w=w)

    def _planar(self, position: tuple[float, float, float], yaw: float) -> Any:
        messages = self._messages
        turn = messages.Quaternion(x=0.0, y=0.0, z=float(np.sin(yaw / 2)), w=float(np.cos(yaw / 2)))
        return messages.Pose(
            position=messages.Vector3(x=position[0], y=position[1], z=position[2]), orientation=turn
        )

    def _text(
        self, text: str, position: tuple[float, float, float], colour: tuple[float, float, float]
    ) -> Any:
        return self._messages.TextPrimitive(
            pose=self._planar(position, 0.0),
            billboard=True,
            font_size=12.0,
            scale_invariant=True,
            color=self._colour(colour, 1.0),
            text=text,
        )

    def _colour(self, colour: tuple[float, float, float], alpha: float) -> Any:
        return self._messages.Color(r=colour[0], g=colour[1], b=colour[2], a=alpha)

    def _time(self, moment: RecordingMoment) -> Any:
        return self._messages.Timestamp(sec=moment.at_ns // 10**9, nsec=moment.at_ns % 10**9)
