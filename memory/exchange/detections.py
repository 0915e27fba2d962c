"""Detected boxes as memories: the ``detections.jsonl`` of ``perceive detect``.

A line is a frame: ``frame``, ``source``, ``timestamp_ns`` (or null), ``boxes`` (x, y, z, length, width,
height, yaw in metres and radians in the LiDAR frame), ``scores``, ``labels``, ``warnings``, and perhaps
``least_scores`` (by class: what the detector takes for an object).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from memory.exchange.poses import Pose, Poses
from memory.types import Memory, check_integer, check_numbers, check_text

_FIELDS = ("boxes", "scores", "labels")


@dataclass(frozen=True, kw_only=True)
class DetectionOptions:
    """How boxes become memories.

    Attributes:
        poses: of the sensor in the map; without them it stands at the origin.
        map_id: of frames whose pose names none.
        min_score: boxes below are left out; None: those below the frame's own ``least_scores``, if any.
        start_ns: time of the first frame where neither frame nor pose has one.
        rate_hz: frames a second, from there on.
        provenance: who says so. Two boxes of one frame are told apart by its being given.
    """

    poses: Poses | None = None
    map_id: str = "default"
    min_score: float | None = None
    start_ns: int | None = None
    rate_hz: float | None = None
    provenance: str = "perceive"

    def __post_init__(self) -> None:
        """Raise ``ValueError`` where numbers are out of range."""
        if self.min_score is not None and not 0.0 <= self.min_score <= 1.0:
            raise ValueError(f"min_score must be from 0 to 1, got {self.min_score}")
        if self.rate_hz is not None and not (math.isfinite(self.rate_hz) and self.rate_hz > 0.0):
            raise ValueError(f"rate_hz must be finite and above 0, got {self.rate_hz}")
        if self.rate_hz is not None and self.start_ns is None:
            raise ValueError("rate_hz needs start_ns")


def is_detections(record: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a frame of detections and not a memory."""
    return all(name in record for name in _FIELDS)


def memories_from_frame(record: Mapping[str, Any], position: int, options: DetectionOptions) -> list[Memory]:
    """The boxes of a frame in the map.

    The payload of each holds ``size_m`` (length, width, height), ``frame`` and, where the frame has a pose,
    ``seen_from``: x, y and yaw of the sensor in the map. Its evidence is the source.

    Args:
        record: a line of the file.
        position: of the frame in the file, from 0.
        options: see there.

    Raises:
        ValueError, TypeError: a field is missing or wrong, the frame has no pose, or no time is known.
    """
    for name in _FIELDS:
        if not isinstance(record.get(name), list):
            raise ValueError(f"{name} must be a list, got {record.get(name)!r}")
    boxes, scores, labels = (record[name] for name in _FIELDS)
    if not len(boxes) == len(scores) == len(labels):
        raise ValueError(
            f"boxes, scores and labels differ in length: {len(boxes)}, {len(scores)}, {len(labels)}"
        )
    frame = check_text("frame", record.get("frame") or str(position))
    pose = Pose() if options.poses is None else options.poses.find(frame, position)
    least = _least_scores(record, labels, options)
    kept = [
        row for row, score in enumerate(check_numbers("scores", scores, len(scores))) if score >= least[row]
    ]
    if not kept:
        return []
    moment = _time_of(record, pose, position, options)
    stood = {} if options.poses is None else {"seen_from": _standing(pose)}
    found = []
    for row in kept:
        place, yaw, size = _in_map(boxes[row], row, pose)
        found.append(
            Memory(
                time_ns=moment,
                position=place,
                yaw=yaw,
                covariance=pose.covariance,
                map_id=options.map_id if pose.map_id is None else pose.map_id,
                kind="object",
                label=check_text(f"labels[{row}]", labels[row]),
                confidence=scores[row],
                payload={"size_m": size, "frame": frame, **stood},
                evidence=check_text("source", record.get("source") or ""),
                provenance=options.provenance,
            )
        )
    return found


def _least_scores(record: Mapping[str, Any], labels: list[Any], options: DetectionOptions) -> list[float]:
    """What the score of each box must reach."""
    if options.min_score is not None:
        return [options.min_score] * len(labels)
    own = record.get("least_scores") or {}
    if not isinstance(own, Mapping):
        raise ValueError(f"least_scores must be an object of scores by class, got {own!r}")
    check_numbers("least_scores", list(own.values()), len(own))
    return [float(own.get(label, 0.0)) if isinstance(label, str) else 0.0 for label in labels]


def _standing(pose: Pose) -> list[float]:
    """x and y in metres and yaw in radians of the sensor in the map."""
    turned = pose.map_from_lidar
    yaw = math.atan2(turned[1, 0], turned[0, 0])
    return [float(turned[0, 3]), float(turned[1, 3]), yaw]


def _in_map(box: Any, row: int, pose: Pose) -> tuple[tuple[float, float, float], float, list[float]]:
    """Position, yaw and size; the heading is turned as a direction, so that slopes are no trouble."""
    name = f"boxes[{row}]"
    if not isinstance(box, list):
        raise TypeError(f"{name} must be a list of seven numbers, got {box!r}")
    x, y, z, length, width, height, yaw = check_numbers(name, box, 7)
    place = pose.map_from_lidar @ np.array([x, y, z, 1.0])
    heading = pose.map_from_lidar[:3, :3] @ np.array([math.cos(yaw), math.sin(yaw), 0.0])
    turned = math.atan2(heading[1], heading[0])
    return (float(place[0]), float(place[1]), float(place[2])), turned, [length, width, height]


def _time_of(record: Mapping[str, Any], pose: Pose, position: int, options: DetectionOptions) -> int:
    if record.get("timestamp_ns") is not None:
        return check_integer("timestamp_ns", record["timestamp_ns"])
    if pose.time_ns is not None:
        return pose.time_ns
    if options.start_ns is None:
        raise ValueError("no time: timestamp_ns is null and the pose has none; give a start and a rate")
    step = 0 if options.rate_hz is None else round(position * 1e9 / options.rate_hz)
    return options.start_ns + step
