"""Several LiDARs of one robot: their description in a YAML file, and their merged scans.

tolerance_s: 0.05           # largest time difference of scans that belong together
sensor_height_m: 0.0        # height of the common frame's origin above the ground
frame: base_link            # name of the common frame in recordings with poses
sensors:
  front:                    # the first sensor sets the time of frames
    scans: front/*.bin      # files below the given folder, or topic of a bag
    extrinsic: {xyz: [0.9, 0.0, 1.2], rpy_deg: [0, 5, 0]}     # or a 4x4 matrix, common_from_sensor
  rear:
    scans: rear/*.bin
    extrinsic: [[-1, 0, 0, -0.8], [0, -1, 0, 0], [0, 0, 1, 1.2], [0, 0, 0, 1]]
    times: rear/times.txt   # for scans without a time in their names
    axes: y,-x,z            # applied before the extrinsic; also scale, intensity_scale, columns
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from scipy.spatial.transform import Rotation

from perception.errors import DataError
from perception.io.columns import parse_columns
from perception.io.text import read_text
from perception.io.transform import ScanTransform
from perception.types import PointCloud

Matrix = npt.NDArray[np.float64]
#: Name of the common frame without one in recordings.
RIG_FRAME = "rig"
_RIG_FIELDS = ("sensors", "tolerance_s", "sensor_height_m", "frame")
_TRANSFORM_FIELDS = ("scale", "axes", "intensity_scale")
_SENSOR_FIELDS = ("scans", "extrinsic", "times", "columns", *_TRANSFORM_FIELDS)


@dataclass(frozen=True, eq=False)
class RigSensor:
    """One sensor of a rig.

    Attributes:
        name: name in messages.
        scans: pattern of files below a folder, or topic of a recording.
        common_from_sensor: (4, 4) float64, metres; applied after ``transform``.
        transform: unit, axes and intensity of its scans.
        columns: columns of files without names.
        times: file below the folder with one time per line.
    """

    name: str
    scans: str
    common_from_sensor: Matrix
    transform: ScanTransform = field(default_factory=ScanTransform)
    columns: tuple[str, ...] | None = None
    times: str | None = None


@dataclass(frozen=True, eq=False)
class Rig:
    """The LiDARs of one robot.

    Attributes:
        path: file of the description.
        sensors: at least one; the first sets the time of frames.
        tolerance_s: largest time difference to a scan of the first sensor.
        sensor_height_m: height of the common frame's origin above the ground; None means about 1.73 m.
        frame: name of the common frame in recordings.
    """

    path: Path
    sensors: tuple[RigSensor, ...]
    tolerance_s: float = 0.05
    sensor_height_m: float | None = None
    frame: str = ""

    def merged(
        self, clouds: Mapping[str, PointCloud], moved: Mapping[str, Matrix] | None = None
    ) -> PointCloud:
        """Merge scans into one point cloud.

        Args:
            clouds: scans by sensor, after ``RigSensor.transform``; sensors may be missing.
            moved: (4, 4) pose of the common frame at each sensor's scan, relative to now; identity if
                missing.

        Returns:
            All points in the common frame, with the time and source of the first sensor and all warnings.
            The frame is named as in recordings, or ``"rig"``.
        """
        parts, warnings = [], dict[str, None]()
        for sensor in self.sensors:
            cloud = clouds.get(sensor.name)
            if cloud is None:
                warnings[f"no scan of sensor {sensor.name!r} within {self.tolerance_s:g} s"] = None
                continue
            matrix = sensor.common_from_sensor
            if moved is not None and sensor.name in moved:
                matrix = moved[sensor.name] @ matrix
            parts.append(_placed(cloud, matrix))
            warnings |= dict.fromkeys(cloud.warnings)
        first = next((clouds[one.name] for one in self.sensors if one.name in clouds), None)
        return PointCloud(
            np.concatenate(parts) if parts else np.zeros((0, 4), np.float32),
            frame=self.frame or RIG_FRAME,
            timestamp_ns=None if first is None else first.timestamp_ns,
            source=None if first is None else first.source,
            sensor_height_m=self.sensor_height_m,
            warnings=tuple(warnings),
        )


def read_rig(path: Path) -> Rig:
    """Read the description of a rig from a YAML file.

    Raises:
        DataError: the file is unreadable, or a field is missing, unknown or invalid.
    """
    try:
        values = yaml.safe_load(read_text(path, "YAML with the field sensors"))
    except DataError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, KeyError) as error:
        # YAMLError does not cover deep nesting, huge numbers and invalid dates.
        reason = str(error)[:500] or type(error).__name__
        raise DataError(f"{path}: not valid YAML ({reason}). docs/scans.md shows an example.") from error
    found = _mapping(f"{path}:", values, _RIG_FIELDS)
    sensors = found.get("sensors")
    if not isinstance(sensors, Mapping) or not sensors:
        raise DataError(f"{path}: field sensors must name at least one sensor, with scans and extrinsic")
    tolerance_s = _number(f"{path}: field tolerance_s", found.get("tolerance_s", Rig.tolerance_s))
    if tolerance_s < 0:
        raise DataError(f"{path}: field tolerance_s must not be negative, got {tolerance_s:g}")
    height = found.get("sensor_height_m")
    return Rig(
        path,
        tuple(_sensor(path, str(name), value) for name, value in sensors.items()),
        tolerance_s,
        None if height is None else _number(f"{path}: field sensor_height_m", height),
        _text(f"{path}: field frame", found.get("frame", "")),
    )


def _sensor(path: Path, name: str, value: Any) -> RigSensor:
    place = f"{path}: sensors.{name[:80]}"
    found = _mapping(f"{place}:", value, _SENSOR_FIELDS)
    for needed in ("scans", "extrinsic"):
        if needed not in found:
            raise DataError(
                f"{place}: field {needed} is missing. Add it; known fields: {', '.join(_SENSOR_FIELDS)}."
            )
    try:
        kept = {entry.name for entry in fields(ScanTransform)} & set(_TRANSFORM_FIELDS)
        transform = ScanTransform(**{key: found[key] for key in kept if found.get(key) is not None})
        columns = None if found.get("columns") is None else parse_columns(found["columns"])
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: {error}") from error
    times = found.get("times")
    return RigSensor(
        name,
        _text(f"{place}: field scans", found["scans"]),
        parse_extrinsic(f"{place}: field extrinsic", found["extrinsic"]),
        transform,
        columns,
        None if times is None else _text(f"{place}: field times", times),
    )


def parse_extrinsic(place: str, value: Any) -> Matrix:
    """Parse a (4, 4) rigid transform: rows of numbers, or ``xyz`` in metres and ``rpy_deg`` in degrees.

    Args:
        place: file and field, for the message.
        value: value from YAML. Roll, pitch and yaw turn about fixed x, y and z in this order.

    Raises:
        DataError: the value has another form, is not finite, or is not a rigid transform.
    """
    made = np.eye(4)
    if isinstance(value, Mapping):
        found = _mapping(f"{place}:", value, ("xyz", "rpy_deg"))
        made[:3, 3] = _numbers(f"{place}.xyz", found.get("xyz", (0.0, 0.0, 0.0)), 3)
        angles = _numbers(f"{place}.rpy_deg", found.get("rpy_deg", (0.0, 0.0, 0.0)), 3)
        made[:3, :3] = Rotation.from_euler("xyz", angles, True).as_matrix()
        return made
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) not in (3, 4):
        raise DataError(f"{place} must be a 4x4 matrix or {{xyz: [...], rpy_deg: [...]}}, got {value!r:.80}")
    for row, numbers in enumerate(value):
        made[row] = _numbers(f"{place}, row {row}", numbers, 4)
    turn = made[:3, :3]
    # Products of huge numbers overflow; such a matrix is not a rotation either.
    with np.errstate(over="ignore", invalid="ignore"):
        rigid = np.abs(turn @ turn.T - np.eye(3)).max() < 1e-3 and np.linalg.det(turn) > 0
    if not rigid or not np.array_equal(made[3], [0, 0, 0, 1]):
        raise DataError(
            f"{place} is not a rigid transform. Write a rotation, a position in metres, and 0 0 0 1 below."
        )
    return made


def _placed(cloud: PointCloud, matrix: Matrix) -> npt.NDArray[np.float32]:
    """Move (N, 4) points, in double precision and point by point."""
    made = cloud.points.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        x, y, z = cloud.points[:, :3].astype(np.float64).T
        for column, (a, b, c, d) in enumerate(matrix[:3].tolist()):
            made[:, column] = a * x + b * y + c * z + d
    return made


def _mapping(place: str, value: Any, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"{place} expected fields {', '.join(known)}, got {value!r:.80}")
    unknown = [str(name) for name in value if name not in known]
    if unknown:
        raise DataError(f"{place} unknown field {unknown[0][:80]!r}. Known fields: {', '.join(known)}.")
    return value


def _numbers(place: str, value: Any, count: int) -> list[float]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != count:
        raise DataError(f"{place} must be {count} numbers, got {value!r:.80}")
    return [_number(place, one) for one in value]


def _number(place: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{place} must be a finite number, got {value!r:.80}")
    return number


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place} must be text, got {value!r:.80}")
    return value
