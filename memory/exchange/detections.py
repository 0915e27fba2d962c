"""Memories from the ``detections.jsonl`` of ``perceive detect``, one frame per line.

Required fields are ``boxes`` (x, y, z, length, width, height, yaw; metres and radians, LiDAR frame),
``scores`` and ``labels``. docs/memory-format.md describes the optional fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memory.exchange.captions import captions_of, place_caption
from memory.exchange.crops import Crops
from memory.exchange.poses import Pose, Poses, pose_of_record
from memory.exchange.scenes import Scenes
from memory.exchange.vectors import dim_of, rows_of
from memory.merging.tracks import TRACKS
from memory.observe.free_space import Looks
from memory.types import Memory, Velocity, check_integer, check_numbers, check_text

if TYPE_CHECKING:
    from memory.encode import ImageTextEncoder

_FIELDS = ("boxes", "scores", "labels")
#: LiDAR recordings are younger than the year 2000: an earlier time counts from the start of the recording.
EARLIEST_NS = 946_684_800 * 10**9
#: Name of a store's main vectors.
DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class DetectionOptions:
    """Options for turning boxes into memories.

    Attributes:
        poses: sensor poses in the map; None: the poses in the file, or the origin if it has none.
        map_id: map of frames whose pose names no map.
        min_score: minimum score of a box; None: the frame's own ``least_scores``, if any.
        start_ns: time of the first frame, for frames without a date; None: the time that the detector
            assumed, or the time of detection.
        rate_hz: frames per second, counted from ``start_ns``.
        provenance: name of the source that the memories record.
        encoder: name under which box embeddings are stored; None: do not store them.
        places: also store a memory of the place of each scan, if the line has a pose and a place vector.
        image_encoder: encoder of object images; its vectors are stored under its name. None: store none.
        crops: base folder of relative image names; None: the folder of the file.
        tracks: store one memory per track instead of one per box, if boxes have track numbers.
        recording: name of the recording that the track numbers belong to; None: derived from the folder and
            first line of the file.
    """

    poses: Poses | None = None
    map_id: str = "default"
    min_score: float | None = None
    start_ns: int | None = None
    rate_hz: float | None = None
    provenance: str = "perceive"
    encoder: str | None = DEFAULT
    places: bool = True
    image_encoder: ImageTextEncoder | None = None
    crops: Path | None = None
    tracks: bool = True
    recording: str | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for numbers out of range."""
        if self.min_score is not None and not 0.0 <= self.min_score <= 1.0:
            raise ValueError(f"min_score must be from 0 to 1, got {self.min_score}")
        if self.rate_hz is not None and not (math.isfinite(self.rate_hz) and self.rate_hz > 0.0):
            raise ValueError(f"rate_hz must be finite and above 0, got {self.rate_hz}")
        if self.rate_hz is not None and self.start_ns is None:
            raise ValueError("rate_hz needs start_ns")


def is_detections(record: Mapping[str, Any]) -> bool:
    """Return True if a JSON object is a frame of detections, not a memory."""
    return all(name in record for name in _FIELDS)


def memories_from_frame(
    record: Mapping[str, Any],
    position: int,
    options: DetectionOptions,
    scenes: Scenes | None = None,
    crops: Crops | None = None,
) -> list[Memory]:
    """Return one memory per box of a frame, in the map, followed by the memory of its place.

    The payload holds ``size_m`` (length, width, height) and ``frame``. It also holds ``seen_from`` (x, y, yaw
    of the sensor in the map), ``crop`` (image path) and ``tracks`` if they are known. The place is left out
    without a pose, or if it is close to the place before. Boxes with ``missed_s`` above 0 are skipped.

    Args:
        position: index of the frame in the file.
        scenes: place encoder of the file; None: no places.
        crops: image reader of the file; None: no images.

    Raises:
        ValueError, TypeError: a field is missing or wrong, the frame has no pose, or no time is known.
    """
    boxes, scores, labels = _fields_of(record)
    frame = check_text("frame", record.get("frame") or str(position))
    pose = _pose_of(record, frame, position, options)
    vectors = _vectors_of(record, len(boxes), options)
    least = _least_scores(record, labels, options)
    tracks, seen = _tracks_of(record, len(boxes))
    velocities = _velocities_of(record, len(boxes), pose)
    rows = [
        row
        for row, score in enumerate(check_numbers("scores", scores, len(scores)))
        if score >= least[row] and seen[row]
    ]
    has_place = scenes is not None and pose is not None and options.places and _has_place(record)
    if not rows and not has_place:
        return []
    time_ns = moment_of(record, pose, position, options)
    names = [check_text(f"labels[{row}]", labels[row]) for row in rows]
    numbers = np.array([_box(boxes[row], row) for row in rows], np.float64).reshape(-1, 7)
    known_pose = Pose() if pose is None else pose
    common: dict[str, Any] = {
        "time_ns": time_ns,
        "covariance": known_pose.covariance,
        "map_id": options.map_id if known_pose.map_id is None else known_pose.map_id,
        "evidence": check_text("source", record.get("source") or ""),
        "provenance": options.provenance,
    }
    payload = {"frame": frame, **({} if pose is None else {"seen_from": _sensor_pose(pose)})}
    captions = captions_of(numbers, names)
    paths = [] if crops is None else crops.paths(record, len(boxes))
    pictures = [paths[row] if paths else None for row in rows]
    looks = [{} for _ in rows] if crops is None else crops.vectors(pictures)
    memories = []
    for at, row in enumerate(rows):
        place, yaw = _in_map(numbers[at], known_pose)
        memories.append(
            Memory(
                **common,
                position=place,
                yaw=yaw,
                kind="object",
                label=names[at],
                caption=captions[at],
                velocity=velocities[row],
                confidence=scores[row],
                payload={
                    "size_m": numbers[at, 3:6].tolist(),
                    **payload,
                    **({} if pictures[at] is None else {"crop": str(pictures[at])}),
                    **_track(tracks, row, options.recording, time_ns),
                },
                **_embedding_fields(options.encoder, None if vectors is None else vectors[row], looks[at]),
            )
        )
    if (
        scenes is not None
        and has_place
        and scenes.is_new_place(common["map_id"], known_pose.map_from_lidar, time_ns)
    ):
        place, yaw = _in_map(np.zeros(7), known_pose)
        memories.append(
            Memory(
                **common,
                position=place,
                yaw=yaw,
                kind="place",
                caption=place_caption(names),
                payload={"frame": frame},
                embeddings=scenes.vectors(record, numbers, names, [scores[row] for row in rows]),
            )
        )
    return memories


def _fields_of(record: Mapping[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return boxes, scores and labels of a frame; raise ``ValueError`` if they are no lists of one length."""
    for name in _FIELDS:
        if not isinstance(record.get(name), list):
            raise ValueError(f"{name} must be a list, got {record.get(name)!r}")
    boxes, scores, labels = (record[name] for name in _FIELDS)
    if not len(boxes) == len(scores) == len(labels):
        raise ValueError(
            f"boxes, scores and labels differ in length: {len(boxes)}, {len(scores)}, {len(labels)}"
        )
    return boxes, scores, labels


def view_from_frame(record: Mapping[str, Any]) -> list[Memory]:
    """Return the objects and the place of a frame in the frame of its sensor, which is at the origin.

    Raises:
        ValueError, TypeError: a field is missing or wrong.
    """
    # Any time will do.
    origin = {"timestamp_ns": 0, **record, "pose": {"map_from_lidar": np.eye(4)[:3].tolist()}}
    origin["timestamp_ns"] = origin["timestamp_ns"] or 0
    return memories_from_frame(origin, 0, DetectionOptions(tracks=False), Scenes())


def look_of_frame(record: Mapping[str, Any], position: int, options: DetectionOptions, looks: Looks) -> None:
    """Add how far a frame saw free space (field ``free``), if it also has a pose and a time.

    Raises:
        ValueError, TypeError: a field is wrong.
    """
    if record.get("free") is None:
        return
    rows = rows_of(record["free"], "free", 1)
    frame = check_text("frame", record.get("frame") or str(position))
    pose = _pose_of(record, frame, position, options)
    if pose is not None:
        place = pose.map_from_lidar
        map_id = options.map_id if pose.map_id is None else pose.map_id
        moment = moment_of(record, pose, position, options)
        looks.add(map_id, moment, place[:3, 3].tolist(), math.atan2(place[1, 0], place[0, 0]), rows[0])


def _tracks_of(record: Mapping[str, Any], count: int) -> tuple[list[int] | None, list[bool]]:
    """Return the track number of each box, or ``None``; and for each box whether this frame sees it."""
    ids, missed = record.get("track_id"), record.get("missed_s")
    if ids is None:
        return None, [True] * count
    for name, value in (("track_id", ids), ("missed_s", missed)):
        if value is not None and (not isinstance(value, list) or len(value) != count):
            raise ValueError(f"{name} must be a list of {count} numbers, got {value!r}")
    numbers = [check_integer(f"track_id[{row}]", one) for row, one in enumerate(ids)]
    if len(set(numbers)) < len(numbers):
        raise ValueError("track_id must not repeat a number within a frame")
    seen = [True] * count if missed is None else [at == 0 for at in check_numbers("missed_s", missed, count)]
    return numbers, seen


def _track(tracks: list[int] | None, row: int, recording: str | None, moment: int) -> dict[str, Any]:
    """Return the payload entry for the track of a box."""
    if tracks is None or recording is None:
        return {}
    return {TRACKS: {f"{recording}/{tracks[row]}": [moment, moment]}}


def _velocities_of(record: Mapping[str, Any], count: int, pose: Pose | None) -> list[Velocity | None]:
    """Return the velocity of each box over the ground, in m/s along the axes of the map; ``None`` if unknown.

    ``velocity`` of tracks lies along the axes of the map that the record's own pose leads to.
    ``velocities`` of a detector lie along x and y of the LiDAR. Without a pose both are unknown, because the
    sensor may move.

    Raises:
        ValueError, TypeError: a field is wrong.
    """
    for name, size in (("velocity", 3), ("velocities", 2)):
        rows = record.get(name)
        if rows is None:
            continue
        if not isinstance(rows, list) or len(rows) != count:
            raise ValueError(f"{name} must be a list of {count} rows, got {rows!r}")
        known = [row is not None for row in rows]
        numbers = [
            check_numbers(f"{name}[{at}]", row, size) if row is not None else (0.0,) * size
            for at, row in enumerate(rows)
        ]
        if pose is None or (size == 3 and record.get("pose") is None):
            return [None] * count
        turn = pose.map_from_lidar[:3, :3]
        if size == 3:
            turn = turn @ pose_of_record(record["pose"]).map_from_lidar[:3, :3].T
        moved = np.array(numbers, np.float64).reshape(count, size) @ turn[:, :size].T
        return [
            (float(x), float(y), float(z)) if there else None
            for (x, y, z), there in zip(moved.tolist(), known, strict=True)
        ]
    return [None] * count


def _pose_of(record: Mapping[str, Any], frame: str, position: int, options: DetectionOptions) -> Pose | None:
    if options.poses is not None:
        return options.poses.find(frame, position)
    return None if record.get("pose") is None else pose_of_record(record["pose"])


def _vectors_of(
    record: Mapping[str, Any], count: int, options: DetectionOptions
) -> NDArray[np.float32] | None:
    if options.encoder is None or record.get("embeddings") is None:
        return None
    return rows_of(record["embeddings"], "embeddings", count)


def _embedding_fields(
    encoder: str | None, vector: NDArray[np.float32] | None, look: dict[str, NDArray[np.float32]]
) -> dict[str, Any]:
    if vector is None or encoder is None:
        return {"embeddings": look}
    if encoder == DEFAULT:
        return {"embedding": vector, "embeddings": look}
    return {"embeddings": {encoder: vector} | look}


def _has_place(record: Mapping[str, Any]) -> bool:
    return record.get("structure") is not None or record.get("place") is not None


def embedding_dim(record: Mapping[str, Any]) -> int | None:
    """Return the length of a frame's box embeddings, or ``None`` if it has none.

    Raises:
        ValueError: the field is wrong.
    """
    embeddings = record.get("embeddings")
    return None if embeddings is None else dim_of(embeddings, "embeddings")


def _least_scores(record: Mapping[str, Any], labels: list[Any], options: DetectionOptions) -> list[float]:
    """Return the minimum score of each box."""
    if options.min_score is not None:
        return [options.min_score] * len(labels)
    own = record.get("least_scores") or {}
    if not isinstance(own, Mapping):
        raise ValueError(f"least_scores must be an object of scores by class, got {own!r}")
    check_numbers("least_scores", list(own.values()), len(own))
    return [float(own.get(label, 0.0)) if isinstance(label, str) else 0.0 for label in labels]


def _sensor_pose(pose: Pose) -> list[float]:
    """Return x and y in metres and yaw in radians of the sensor in the map."""
    turned = pose.map_from_lidar
    yaw = math.atan2(turned[1, 0], turned[0, 0])
    return [float(turned[0, 3]), float(turned[1, 3]), yaw]


def _box(box: Any, row: int) -> tuple[float, ...]:
    name = f"boxes[{row}]"
    if not isinstance(box, list):
        raise TypeError(f"{name} must be a list of seven numbers, got {box!r}")
    return check_numbers(name, box, 7)


def _in_map(box: NDArray[np.float64], pose: Pose) -> tuple[tuple[float, float, float], float]:
    """Return position and yaw in the map; the heading is rotated as a direction, which is exact on slopes."""
    x, y, z, _, _, _, yaw = box.tolist()
    place = pose.map_from_lidar @ np.array([x, y, z, 1.0])
    heading = pose.map_from_lidar[:3, :3] @ np.array([math.cos(yaw), math.sin(yaw), 0.0])
    turned = math.atan2(heading[1], heading[0])
    return (float(place[0]), float(place[1]), float(place[2])), turned


def moment_of(record: Mapping[str, Any], pose: Pose | None, position: int, options: DetectionOptions) -> int:
    """Return the time of a frame in nanoseconds since the epoch.

    The frame's own time or its pose's time is used if it is a date. Otherwise the time counts from
    ``start_ns``: by the time since the start of the recording, or by the frame's index. Without ``start_ns``
    the order is: the date that the detector assumed (``assumed_ns``), the undated time, the time of
    detection.

    Raises:
        ValueError, TypeError: a field is wrong, or no time is known.
    """
    own = None if pose is None else pose.time_ns
    if record.get("timestamp_ns") is not None:
        own = check_integer("timestamp_ns", record["timestamp_ns"])
    if own is not None and own >= EARLIEST_NS:
        return own
    if options.start_ns is not None:
        step = 0 if options.rate_hz is None else round(position * 1e9 / options.rate_hz)
        return options.start_ns + (step if own is None else own)
    if record.get("assumed_ns") is not None:
        return check_integer("assumed_ns", record["assumed_ns"])
    if own is not None:
        return own
    if record.get("detected_ns") is not None:
        return check_integer("detected_ns", record["detected_ns"])
    raise ValueError(
        "the frame has no time: timestamp_ns is null and no pose has one. Give a start and a rate"
    )
