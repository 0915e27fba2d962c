"""Sensor poses by scan, read from a file.

Three formats; ``recall import --poses`` reads the last two:

- TUM: rows ``time x y z qx qy qz qw`` in seconds since the epoch, metres, and a unit quaternion. A scan gets
  the pose at its time, interpolated linearly in position and spherically in rotation.
- KITTI odometry: rows of 12 numbers, the upper three rows of a 4x4 matrix ``map_from_lidar``. Scan ``000010``
  has row 10, counted from 0. A scan whose name is no number has the row of its position. An empty line stands
  for a scan without a pose. Comments (``#``) do not count.
- JSONL with ``frame``, ``x``, ``y``, ``yaw`` and optionally ``z``, ``time_ns`` or ``time`` (ISO 8601, UTC by
  default), ``covariance`` (3 x 3, of the position) and ``map_id``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.recordings.stamped import StampedTransform
from perception.io.recordings.trajectory import MAX_GAP_S, Trajectory
from perception.io.text import parse_count, parse_number, read_rows
from perception.io.times import parse_date, parse_seconds, time_in_name

#: From KITTI's camera axes (x right, y down, z forward) to those of LiDAR and map.
_LIDAR_FROM_CAMERA = np.array([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=np.float64)
#: Numbers per row of TUM's and KITTI's formats.
_TUM, _KITTI = 8, 12
#: Tolerance of a quaternion's length, for files with few digits.
_UNIT_TOLERANCE = 0.02
_FIELDS = ("frame", "x", "y", "z", "yaw", "time_ns", "time", "covariance", "map_id")


@dataclass(frozen=True, eq=False)
class ScanPose:
    """Pose of the sensor at a scan.

    Attributes:
        map_from_lidar: (4, 4) float64.
        time_ns: nanoseconds since the epoch, or None.
        covariance: (3, 3) of the position in square metres as rows of numbers, or None.
        map_id: name of the map, or None.
    """

    map_from_lidar: npt.NDArray[np.float64]
    time_ns: int | None = None
    covariance: Any = None
    map_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the field ``pose`` of a record of ``detections.jsonl``."""
        found: dict[str, Any] = {"map_from_lidar": self.map_from_lidar[:3].tolist()}
        for name in ("time_ns", "covariance", "map_id"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found


class ScanPoses:
    """Poses of scans from a file; the module describes the formats.

    Args:
        path: file of poses.
        camera: True if rows are poses of KITTI's camera 0; the LiDAR is assumed at the same position.

    Raises:
        DataError: the file or a line of it is invalid.
    """

    def __init__(self, path: Path, *, camera: bool = False) -> None:
        self.path = path
        self._camera = camera
        self._rows: list[ScanPose | None] = []
        self._named: dict[str, ScanPose] = {}
        timed: dict[int, StampedTransform] = {}
        empty = 0
        for number, line in read_rows(path, "one pose per line"):
            place, words = f"{path}: line {number}", line.split()
            if not line:
                empty += 1
                continue
            if line.startswith("{"):
                name, pose = _named(place, line)
                if name in self._named:
                    raise DataError(f"{place}: second pose of frame {name!r}. Delete one of the two lines.")
                self._named[name] = pose
            elif len(words) == _TUM and not self._rows:
                one = _timed(place, words)
                if one.time_ns in timed:
                    raise DataError(f"{place}: second pose at time {words[0]}. Delete one of the two lines.")
                timed[one.time_ns] = one
            else:
                # Rows belong to scans by position: an empty line stands for a scan without a pose.
                self._rows += [None] * empty
                self._rows.append(_row(place, words, camera=camera))
            empty = 0
            if (self._rows or timed) and self._named:
                raise DataError(f"{place}: the file mixes rows of numbers with JSON. Use one format.")
            if self._rows and timed:
                raise DataError(
                    f"{place}: {len(words)} numbers after rows of {_TUM}. Use one format in the whole file."
                )
        if not self._rows and not self._named and not timed:
            raise DataError(f"{path}: no poses. Write one pose per line.")
        self._trajectory = Trajectory(list(timed.values())) if timed else None

    @property
    def by_time(self) -> bool:
        """True if poses are found by time instead of name."""
        return self._trajectory is not None

    def find(self, name: str, position: int, time_ns: int | None = None) -> ScanPose:
        """Find the pose of a scan.

        Args:
            name: scan name, without folder and suffix.
            position: index among the scans, from 0.
            time_ns: time of the scan, nanoseconds since the epoch; None takes it from the name.

        Raises:
            DataError: the scan has no pose.
        """
        if self._trajectory is not None:
            return self._at(self._trajectory, name, time_in_name(name) if time_ns is None else time_ns)
        if self._named:
            if _key(name) not in self._named:
                raise DataError(
                    f"{self.path}: no pose for scan {name!r}. Add a line whose field frame is {name!r}."
                )
            return self._named[_key(name)]
        count = parse_count(name)
        row = position if count is None else count
        if row >= len(self._rows):
            raise DataError(
                f"{self.path}: scan {name!r} needs row {row + 1}, but there are {len(self._rows)}. Write one"
                " row per scan, or JSON lines with the field frame."
            )
        pose = self._rows[row]
        if pose is None:
            raise DataError(
                f"{self.path}: row {row + 1}, of scan {name!r}, is empty. Write the pose of the scan there."
            )
        return pose

    def at(self, time_ns: int) -> npt.NDArray[np.float64] | None:
        """Return (4, 4) map_from_lidar at a time, or None without a timed pose within a second."""
        matrix = None if self._trajectory is None else self._trajectory.at(time_ns)
        return _from_camera(matrix) if matrix is not None and self._camera else matrix

    def _at(self, trajectory: Trajectory, name: str, time_ns: int | None) -> ScanPose:
        if time_ns is None:
            raise DataError(
                f"{self.path}: these poses need the time of each scan, but {name!r} has none. Add --times"
                " FILE with one time per line, or name scans by time (1305031102.175304.bin)."
            )
        matrix = self.at(time_ns)
        if matrix is None:
            first, last = (moment / 1e9 for moment in trajectory.span_ns)
            raise DataError(
                f"{self.path}: no pose within {MAX_GAP_S:g} s of scan {name!r} at {time_ns / 1e9:.3f} s."
                " Poses"
                f" reach from {first:.3f} to {last:.3f} s. Check that sensor and poses use the same clock."
            )
        return ScanPose(matrix, time_ns)


def _timed(place: str, words: list[str]) -> StampedTransform:
    """Parse a row in TUM's format."""
    names = ("x", "y", "z", "qx", "qy", "qz", "qw")
    numbers = [parse_number(place, name, word) for name, word in zip(names, words[1:], strict=True)]
    turn = np.array(numbers[3:])
    length = float(np.linalg.norm(turn))
    if not abs(length - 1.0) < _UNIT_TOLERANCE:
        raise DataError(
            f"{place}: quaternion {', '.join(words[4:])[:200]} has length {length:.3g} instead of 1. Write"
            " rows as time x y z qx qy qz qw."
        )
    moment = parse_seconds(place, "time", words[0])
    return StampedTransform("map", "lidar", moment, np.array(numbers[:3]), turn / length)


def _from_camera(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the pose of a LiDAR at the position of a camera."""
    return _LIDAR_FROM_CAMERA @ matrix @ _LIDAR_FROM_CAMERA.T


def _row(place: str, words: list[str], *, camera: bool) -> ScanPose:
    if len(words) != _KITTI:
        raise DataError(
            f"{place}: {len(words)} numbers; expected 12 (a 3x4 matrix, row by row), 8 (time x y z qx qy qz"
            " qw), or JSON."
        )
    numbers = [parse_number(place, f"{at + 1}", word) for at, word in enumerate(words)]
    matrix = np.vstack([np.reshape(numbers, (3, 4)), [0.0, 0.0, 0.0, 1.0]])
    turn = matrix[:3, :3]
    if np.abs(turn @ turn.T - np.eye(3)).max() > 1e-2 or np.linalg.det(turn) < 0.0:
        raise DataError(
            f"{place}: the left 3x3 block is not a rotation matrix. Write map_from_lidar, row by row."
        )
    return ScanPose(_from_camera(matrix) if camera else matrix)


def _named(place: str, line: str) -> tuple[str, ScanPose]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON ({error}). Correct or delete the line.") from error
    unknown = sorted(record.keys() - set(_FIELDS))
    if unknown:
        raise DataError(f"{place}: unknown field {unknown[0]!r}. Known fields: {', '.join(_FIELDS)}.")
    frame = record.get("frame")
    if isinstance(frame, bool) or not isinstance(frame, str | int):
        raise DataError(f"{place}: field frame must be the name of a scan, got {frame!r}")
    x, y, z, yaw = (_number(place, record, name) for name in ("x", "y", "z", "yaw"))
    matrix = np.eye(4)
    matrix[:2, :2] = [[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]]
    matrix[:3, 3] = x, y, z
    map_id = record.get("map_id")
    if map_id is not None and not isinstance(map_id, str):
        raise DataError(f"{place}: field map_id must be text, got {map_id!r}")
    return _key(str(frame)), ScanPose(matrix, _time(place, record), _covariance(place, record), map_id)


def _number(place: str, record: Mapping[str, Any], name: str) -> float:
    value = record.get(name, 0.0 if name == "z" else None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{place}: field {name} must be a finite number, got {value!r}")
    return float(value)


def _time(place: str, record: Mapping[str, Any]) -> int | None:
    moment, text = record.get("time_ns"), record.get("time")
    if moment is not None:
        if isinstance(moment, bool) or not isinstance(moment, int):
            raise DataError(f"{place}: field time_ns must be a whole number, got {moment!r}")
        return moment
    if text is None:
        return None
    try:
        return parse_date(text)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{place}: field time must be ISO 8601 such as 2026-01-02T10:00:00Z, got {text!r}"
        ) from error


def _covariance(place: str, record: Mapping[str, Any]) -> list[list[float]] | None:
    value = record.get("covariance")
    if value is None:
        return None
    try:
        matrix = np.array(value, np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise DataError(f"{place}: field covariance must be 3 x 3 finite numbers, got {value!r}")
    rows: list[list[float]] = matrix.tolist()
    return rows


def _key(name: str) -> str:
    """Drop leading zeros of a number: frame ``10`` is frame ``000010``."""
    return name.lstrip("0") or "0" if name.isascii() and name.isdigit() else name
