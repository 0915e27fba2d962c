"""Where the sensor was at each frame, in the map.

Two formats:

- Rows of 12 numbers as KITTI's odometry has them: the upper three rows of a 4x4 matrix, row by row. Frame
  ``000010`` has row 10, counted from 0; a frame whose name is no number has the row of its place in the file.
  An empty line is the row of a frame without a pose; comments (``#``) are no rows.
  The matrix is ``map_from_lidar`` (docs/conventions.md), or with ``camera=True`` that of KITTI's camera 0.
- JSONL with ``frame``, ``x``, ``y``, ``yaw`` and, where they are known, ``z``, ``time_ns`` or ``time``,
  ``covariance`` (3 x 3, of the position) and ``map_id``.
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

#: Axes of KITTI's camera (x right, y down, z forward) in those of the LiDAR and the map.
LIDAR_FROM_CAMERA = np.array([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=np.float64)
_FIELDS = {"frame", "x", "y", "z", "yaw", "time_ns", "time", "covariance", "map_id"}
_IDENTITY = np.eye(4)


@dataclass(frozen=True, eq=False)
class Pose:
    """Pose of the sensor.

    Attributes:
        map_from_lidar: (4, 4) float64.
        time_ns: when, or ``None``.
        covariance: (3, 3) of the position in square metres, or ``None``.
        map_id: or ``None``.
    """

    map_from_lidar: NDArray[np.float64] = field(default_factory=lambda: _IDENTITY)
    time_ns: int | None = None
    covariance: NDArray[np.float64] | None = None
    map_id: str | None = None


class Poses:
    """Poses by frame.

    Args:
        path: the file, for messages.
        rows: in their order; ``None`` where a frame has no pose.
        names: row by name of the frame, or ``None`` where rows have no names.
    """

    def __init__(self, path: Path, rows: Sequence[Pose | None], names: Mapping[str, int] | None) -> None:
        self.path = path
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, frame: str, position: int) -> Pose:
        """The pose of a frame.

        Args:
            frame: its name.
            position: its place among the frames, from 0.

        Raises:
            ValueError: there is none.
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
                f"frame {frame!r} needs row {row} (from 0) of {self.path}, which has {len(self._rows)};"
                " JSONL poses name their frames"
            )
        pose = self._rows[row]
        if pose is None:
            raise ValueError(f"row {row} (from 0) of {self.path}, of frame {frame!r}, is empty")
        return pose


def read_poses(path: Path, *, camera: bool = False) -> Poses:
    """Read either format, told apart by the first character.

    Args:
        path: the file.
        camera: rows of numbers are poses of KITTI's camera 0; the LiDAR is taken to be at its place.

    Raises:
        DataError: names file and line.
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
            raise DataError(f"{path}:{line.number}: rows of numbers and JSON objects are mixed")
        if not named:
            # Their frames are known by the place of the row: the frame of an empty line has no pose.
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
        raise DataError(f"{path}: holds no pose")
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
    if not _turns(matrix):
        raise DataError(f"{place}: the left three columns are no rotation")
    if camera:
        matrix = LIDAR_FROM_CAMERA @ matrix @ LIDAR_FROM_CAMERA.T
    return Pose(matrix)


def _parse_object(path: Path, line: Line) -> tuple[str, Pose]:
    record = parse_object(path, line)
    try:
        unknown = sorted(record.keys() - _FIELDS)
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}; there are {', '.join(sorted(_FIELDS))}")
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
    return _told(matrix, record)


def pose_of_record(value: object) -> Pose:
    """The ``pose`` of a line of detections: ``map_from_lidar`` and what else is known.

    Args:
        value: of the JSON record: three rows of four numbers, and perhaps ``time_ns``, ``covariance`` and
            ``map_id``.

    Raises:
        ValueError, TypeError: it is no pose; names the field.
    """
    rows = value.get("map_from_lidar") if isinstance(value, Mapping) else None
    if not isinstance(rows, list) or len(rows) != 3 or not all(isinstance(row, list) for row in rows):
        raise ValueError("pose must be an object with map_from_lidar, three rows of four numbers")
    assert isinstance(value, Mapping)
    matrix = np.eye(4)
    for at, row in enumerate(rows):
        matrix[at] = check_numbers(f"pose map_from_lidar[{at}]", row, 4)
    if not _turns(matrix):
        raise ValueError("pose map_from_lidar: the left three columns are no rotation")
    return _told(matrix, value)


def _turns(matrix: NDArray[np.float64]) -> bool:
    """Whether the left three columns are a rotation."""
    turn = matrix[:3, :3]
    return bool(np.abs(turn @ turn.T - np.eye(3)).max() <= 1e-2 and np.linalg.det(turn) > 0.0)


def _told(matrix: NDArray[np.float64], record: Mapping[str, Any]) -> Pose:
    """A pose with the time, covariance and map that a record says."""
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
    """Frame ``10`` is frame ``000010``."""
    return str(int(frame)) if _is_number(frame) else frame
