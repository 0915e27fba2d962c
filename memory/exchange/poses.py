"""Sensor poses in the map, one per frame.

Two formats are supported:

- KITTI odometry: 12 numbers per line, the upper three rows of a 4x4 matrix. Frame ``000010`` uses row 10,
  counted
  from 0; a frame whose name is not a number uses the row of its index in the file. An empty line is a frame
  without a pose; comments (``#``) are skipped. The matrix is ``map_from_lidar`` (docs/conventions.md), or
  with
  ``camera=True`` the pose of KITTI's camera 0.
- JSONL with ``frame``, ``x``, ``y``, ``yaw`` and optionally ``z``, ``time_ns`` or ``time``, ``covariance``
  (3x3, of
  the position) and ``map_id``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.errors import DataError
from memory.exchange.jsonl import Line, parse_object, read_lines
from memory.exchange.times import parse_time
from memory.types import check_covariance, check_integer, check_numbers, check_text

#: From KITTI's camera axes (x right, y down, z forward) to those of the LiDAR and the map.
LIDAR_FROM_CAMERA = np.array([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=np.float64)
_FIELDS = {"frame", "x", "y", "z", "yaw", "time_ns", "time", "covariance", "map_id"}
_IDENTITY = np.eye(4)


@dataclass(frozen=True, eq=False)
class Pose:
    """Pose of the sensor.

    Attributes:
        map_from_lidar: (4, 4) float64.
        time_ns: time of the pose, or ``None``.
        covariance: (3, 3) of the position in square metres, or ``None``.
        map_id: map of the pose, or ``None``.
    """

    map_from_lidar: NDArray[np.float64] = field(default_factory=lambda: _IDENTITY)
    time_ns: int | None = None
    covariance: NDArray[np.float64] | None = None
    map_id: str | None = None


class Poses:
    """Poses by frame.

    Args:
        path: the file, for messages.
        rows: poses in file order; ``None`` for a frame without a pose.
        names: row of each frame name, or ``None`` if rows are not named.
    """

    def __init__(self, path: Path, rows: Sequence[Pose | None], names: Mapping[str, int] | None) -> None:
        self.path = path
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, frame: str, position: int) -> Pose:
        """Return the pose of a frame.

        Args:
            frame: its name.
            position: its index in the file of frames.

        Raises:
            ValueError: the frame has no pose.
        """
        if self._names is not None:
            named = self._names.get(_key(frame))
            pose = None if named is None else self._rows[named]
            if pose is None:
                raise ValueError(f"frame {frame!r} has no pose in {self.path}")
            return pose
        row = int(frame) if _is_number(frame) else position
        if row >= len(self._rows):
            raise ValueError(
                f"frame {frame!r} needs row {row} (from 0) of {self.path}, which has {len(self._rows)} rows."
                " Use JSONL poses, which name their frames"
            )
        pose = self._rows[row]
        if pose is None:
            raise ValueError(f"row {row} (from 0) of {self.path}, of frame {frame!r}, is empty")
        return pose


def read_poses(path: Path, *, camera: bool = False) -> Poses:
    """Read poses in either format; the first character of a line decides.

    Args:
        path: the file.
        camera: rows are poses of KITTI's camera 0, which is assumed to be at the LiDAR's position.

    Raises:
        DataError: a line is invalid.
    """
    rows: list[Pose | None] = []
    names: dict[str, int] = {}
    empty = 0
    for line in read_lines(path):
        text = line.raw.strip()
        if not text:
            empty += 1
        if not text or text.startswith(b"#"):
            continue
        named = line.raw.lstrip().startswith(b"{")
        if rows and named != bool(names):
            raise DataError(
                f"{path}:{line.number}: the file mixes rows of numbers and JSON objects. Use one format"
            )
        if not named:
            # Row numbers identify the frames, so an empty line counts as a frame without a pose.
            rows += [None] * empty
            empty = 0
            rows.append(_parse_row(path, line, camera=camera))
            continue
        frame, pose = _parse_object(path, line)
        if _key(frame) in names:
            raise DataError(f"{path}:{line.number}: frame {frame!r} has a pose already")
        names[_key(frame)] = len(rows)
        rows.append(pose)
    if not rows:
        raise DataError(f"{path}: no pose found. Give 12 numbers or a JSON object per line")
    return Poses(path, rows, names or None)


def _parse_row(path: Path, line: Line, *, camera: bool) -> Pose:
    place = f"{path}:{line.number}"
    try:
        numbers = [float(word) for word in line.raw.split()]
    except ValueError as error:
        raise DataError(f"{place}: expected 12 numbers or a JSON object") from error
    if len(numbers) != 12 or not all(map(math.isfinite, numbers)):
        raise DataError(f"{place}: expected 12 finite numbers, the rows of a 3x4 matrix; got {len(numbers)}")
    matrix = np.vstack([np.reshape(numbers, (3, 4)), [0.0, 0.0, 0.0, 1.0]])
    if not _is_rotation(matrix):
        raise DataError(f"{place}: the left three columns are not a rotation")
    if camera:
        matrix = LIDAR_FROM_CAMERA @ matrix @ LIDAR_FROM_CAMERA.T
    return Pose(matrix)


def _parse_object(path: Path, line: Line) -> tuple[str, Pose]:
    record = parse_object(path, line)
    try:
        unknown = sorted(record.keys() - _FIELDS)
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}. Use {', '.join(sorted(_FIELDS))}")
        missing = [name for name in ("frame", "x", "y", "yaw") if record.get(name) is None]
        if missing:
            raise ValueError(f"field {missing[0]!r} is missing")
        frame = (
            record["frame"]
            if isinstance(record["frame"], str)
            else str(check_integer("frame", record["frame"]))
        )
        numbers = [record["x"], record["y"], record.get("z") or 0.0, record["yaw"]]
        if any(isinstance(number, bool | str) for number in numbers):
            raise TypeError("x, y, z and yaw must be numbers")
        return frame, _pose(record, *check_numbers("x, y, z, yaw", numbers, 4))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}:{line.number}: {error}") from error


def _pose(record: Mapping[str, Any], x: float, y: float, z: float, yaw: float) -> Pose:
    matrix = np.eye(4)
    matrix[:2, :2] = [[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]]
    matrix[:3, 3] = x, y, z
    return _pose_with_fields(matrix, record)


def pose_of_record(value: object) -> Pose:
    """Read the ``pose`` of a line of detections.

    Args:
        value: JSON object with ``map_from_lidar``, three rows of four numbers, and optionally ``time_ns``,
            ``covariance`` and ``map_id``.

    Raises:
        ValueError, TypeError: a field is missing or wrong.
    """
    rows = value.get("map_from_lidar") if isinstance(value, Mapping) else None
    if not isinstance(rows, list) or len(rows) != 3 or not all(isinstance(row, list) for row in rows):
        raise ValueError("pose must be an object with map_from_lidar, three rows of four numbers")
    assert isinstance(value, Mapping)
    matrix = np.eye(4)
    for at, row in enumerate(rows):
        matrix[at] = check_numbers(f"pose map_from_lidar[{at}]", row, 4)
    if not _is_rotation(matrix):
        raise ValueError("pose map_from_lidar: the left three columns are not a rotation")
    return _pose_with_fields(matrix, value)


def _is_rotation(matrix: NDArray[np.float64]) -> bool:
    """Return True if the left three columns are a rotation."""
    turn = matrix[:3, :3]
    return bool(np.abs(turn @ turn.T - np.eye(3)).max() <= 1e-2 and np.linalg.det(turn) > 0.0)


def _pose_with_fields(matrix: NDArray[np.float64], record: Mapping[str, Any]) -> Pose:
    """Return a pose with the time, covariance and map of a record."""
    moment = record.get("time_ns")
    if moment is not None:
        moment = check_integer("time_ns", moment)
    elif record.get("time") is not None:
        moment = parse_time(check_text("time", record["time"]))
    spread = record.get("covariance")
    return Pose(
        matrix,
        moment,
        None if spread is None else check_covariance(spread),
        None if record.get("map_id") is None else check_text("map_id", record["map_id"]),
    )


def _is_number(frame: str) -> bool:
    return frame.isascii() and frame.isdigit()


def _key(frame: str) -> str:
    """Return the key of a frame name; ``10`` and ``000010`` are the same frame."""
    return str(int(frame)) if _is_number(frame) else frame
