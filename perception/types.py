"""Typed data that the stages of perception pass to each other.

All boxes are ``(x, y, z, length, width, height, yaw)``: metres and radians in the LiDAR frame
(x forward, y left, z up), z at the box centre, yaw counter-clockwise from +x. See docs/conventions.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

#: Name of the frame whose axes are x forward, y left, z up, origin at the sensor.
LIDAR_FRAME = "lidar"


def check_columns(shape: tuple[int, ...]) -> None:
    """Refuse what is not (N, 4), x, y, z and intensity, or (N, 3) without intensity.

    Raises:
        ValueError: the message says how to get there.
    """
    if len(shape) == 2 and shape[1] in (3, 4):
        return
    advice = "one row a point"
    if len(shape) == 2 and shape[1] > 4:
        advice = "pick the four columns, such as points[:, :4] where ring or time follow"
    raise ValueError(
        "points must have shape (N, 4): x, y, z, intensity, or (N, 3) without intensity;"
        f" got {shape}: {advice}"
    )


@dataclass(frozen=True, eq=False)
class PointCloud:
    """One scan.

    Attributes:
        points: (N, 4) float32: x, y, z in metres in ``frame``, intensity in [0, 1]. Given as (N, 3),
            intensity becomes zero; other real dtypes are converted, numbers beyond float32 become infinite.
        frame: name of the coordinate frame; ``"lidar"`` is x forward, y left, z up.
        timestamp_ns: time of the scan in nanoseconds since the epoch, if known.
        source: file or sensor the scan came from, used in messages.
        sensor_height_m: height of the origin above the ground where it is not that of the data that the
            weights were trained on; see :class:`~perception.scans.ScanTransform`.
        warnings: what its reader noticed; the detector copies them to the detections.

    Raises:
        TypeError: ``points`` is not a numpy array of real numbers.
        ValueError: ``points`` is neither (N, 4) nor (N, 3).
    """

    points: FloatArray
    frame: str = LIDAR_FRAME
    timestamp_ns: int | None = None
    source: str | None = None
    sensor_height_m: float | None = None
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        points = self.points
        if not isinstance(points, np.ndarray):
            raise TypeError(f"points must be a numpy array of shape (N, 4), got {type(points).__name__}")
        check_columns(tuple(points.shape))
        if points.dtype.kind not in "fiu":
            raise TypeError(f"points must be an array of float or integer numbers, got dtype {points.dtype}")
        if points.dtype != np.float32 or points.shape[1] == 3:
            made = np.zeros((len(points), 4), np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                made[:, : points.shape[1]] = points
            object.__setattr__(self, "points", made)

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, eq=False)
class Boxes3D:
    """Labelled boxes, for example the ground truth of a frame.

    Attributes:
        boxes: (M, 7) float32, see the module docstring.
        labels: M class names.
    """

    boxes: FloatArray
    labels: list[str]

    def __post_init__(self) -> None:
        boxes = np.asarray(self.boxes, dtype=np.float32).reshape(-1, 7)
        object.__setattr__(self, "boxes", boxes)
        if len(boxes) != len(self.labels):
            raise ValueError(f"{len(boxes)} boxes but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True, eq=False)
class Detections:
    """Boxes that the detector found in one scan, best score first.

    Attributes:
        boxes: (M, 7) float32, LiDAR frame, see the module docstring.
        scores: (M,) float32 in [0, 1], not increasing.
        labels: M class names.
        timestamp_ns: time of the scan, copied from the input.
        source: file or sensor the scan came from, copied from the input.
        warnings: what a user should know about this frame: dropped points, capacity overflow, and what is
            doubtful about the scan (unit, axes, height, intensity, range) with what mends it.
    """

    boxes: FloatArray
    scores: FloatArray
    labels: list[str]
    timestamp_ns: int | None = None
    source: str | None = None
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not (len(self.boxes) == len(self.scores) == len(self.labels)):
            raise ValueError(
                f"boxes, scores and labels differ in length: "
                f"{len(self.boxes)}, {len(self.scores)}, {len(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.boxes)

    @classmethod
    def empty(cls, *, source: str | None = None, warnings: tuple[str, ...] = ()) -> Detections:
        """No box at all: the result for an empty cloud."""
        return cls(
            np.zeros((0, 7), np.float32), np.zeros(0, np.float32), [], source=source, warnings=warnings
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, ready for JSON: one record a frame of ``detections.jsonl``."""
        return {
            "source": self.source,
            "timestamp_ns": self.timestamp_ns,
            "boxes": [[round(float(value), 4) for value in box] for box in self.boxes],
            "scores": [round(float(score), 6) for score in self.scores],
            "labels": list(self.labels),
            "warnings": list(self.warnings),
        }
