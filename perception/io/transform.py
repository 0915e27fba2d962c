"""Conversion of a recorded scan to the units and axes of a detector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.types import FloatArray, PointCloud

#: Height of the sensor above the ground in the data that the shipped weights were trained on (KITTI).
TRAINED_SENSOR_HEIGHT_M = 1.73

_UNTURNED = "x,y,z"


@dataclass(frozen=True)
class ScanTransform:
    """Conversion of a scan to metres, x forward, y left, z up, and intensity in [0, 1].

    >>> millimetres = ScanTransform(scale=0.001, axes="y,-x,z")
    >>> detections = detector(millimetres.apply(points))

    Attributes:
        scale: metres per unit of the scan: 0.001 for millimetres, 0.3048 for feet.
        axes: the scan's axes that point forward, left and up, with signs: ``"y,-x,z"`` for x right and y
            forward (nuScenes), ``"z,-x,-y"`` for camera axes. None means ``"x,y,z"``.
        sensor_height_m: height of the scan's origin above the ground; None means about 1.73 m, as in the
            training data. Points and boxes keep their origin; only the detector shifts them.
        intensity_scale: stored intensity that means 1, such as 255; brighter points count as 1. None scales
            files as :func:`~perception.io.load_point_cloud` does, and keeps arrays.
        mounting_deg: roll, pitch and yaw in degrees of a tilted or turned sensor. They turn the robot's axes
            into the sensor's, about the robot's x, y and z in this order. A positive pitch looks down, a
            positive yaw to the left. Applied after ``axes``, about the scan's origin. None means level.

    Raises:
        ValueError: the scale is not positive, a height or angle is not finite, or ``axes`` has another form.
    """

    scale: float = 1.0
    axes: str | None = None
    sensor_height_m: float | None = None
    intensity_scale: float | None = None
    mounting_deg: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("scale", "intensity_scale"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if self.sensor_height_m is not None and not math.isfinite(self.sensor_height_m):
            raise ValueError(f"sensor_height_m must be a finite number, got {self.sensor_height_m!r}")
        if self.axes is not None:
            object.__setattr__(self, "axes", ",".join(_axes(self.axes)))
        if self.mounting_deg is not None:
            object.__setattr__(self, "mounting_deg", _angles(self.mounting_deg))

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """(3, 3) float64 from the scan's x, y, z to metres forward, left and up; it may mirror."""
        return self.rotation * self.scale

    @property
    def rotation(self) -> npt.NDArray[np.float64]:
        """(3, 3) float64, ``matrix`` without the scale."""
        return self._mounting @ self._signs

    @property
    def _signs(self) -> npt.NDArray[np.float64]:
        """(3, 3) float64 matrix of ``axes``."""
        made = np.zeros((3, 3))
        for row, axis in enumerate(_axes(self.axes or _UNTURNED)):
            made[row, "xyz".index(axis[-1])] = -1.0 if axis.startswith("-") else 1.0
        return made

    @property
    def _mounting(self) -> npt.NDArray[np.float64]:
        """(3, 3) float64 rotation of ``mounting_deg``."""
        if self.mounting_deg is None:
            return np.eye(3)
        # Imported here because it takes a third of a second.
        from scipy.spatial.transform import Rotation

        turned: npt.NDArray[np.float64] = Rotation.from_euler("xyz", self.mounting_deg, True).as_matrix()
        return turned

    @property
    def keeps_xyz(self) -> bool:
        """True if coordinates do not change."""
        turned = self.mounting_deg is not None and any(self.mounting_deg)
        return self.scale == 1 and (self.axes or _UNTURNED) == _UNTURNED and not turned

    @property
    def options(self) -> str:
        """The transform as options of ``perceive detect``; empty if nothing changes."""
        parts = []
        if self.scale != 1:
            parts.append(f"--scale {self.scale:g}")
        if self.axes is not None:
            # argparse takes a separate value with a leading minus for an option.
            parts.append(f"--axes={self.axes}" if self.axes.startswith("-") else f"--axes {self.axes}")
        if self.sensor_height_m is not None:
            parts.append(f"--sensor-height {self.sensor_height_m:.2f}")
        if self.intensity_scale is not None:
            parts.append(f"--intensity-scale {self.intensity_scale:g}")
        if self.mounting_deg is not None:
            parts.append("--mounting=" + ",".join(f"{angle:g}" for angle in self.mounting_deg))
        return " ".join(parts)

    @property
    def instruction(self) -> str:
        """Advice for writing scans in the right unit and axes."""
        if self.axes is None:
            return f"Multiply x, y, z by {self.scale:g}"
        changed = [(new, old) for new, old in zip("xyz", self.axes.split(","), strict=True) if new != old]
        moved = " (old values on the right)" if any(new != old[-1] for new, old in changed) else ""
        return f"Write {', '.join(f'{new} = {old}' for new, old in changed)}{moved}"

    @property
    def expression(self) -> str:
        """The transform as a Python expression."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        parts = [f"{name}={value!r}" for name, value in given.items() if value not in (None, 1.0)]
        return f"ScanTransform({', '.join(parts)})"

    def then(self, after: ScanTransform) -> ScanTransform:
        """Return the transform that applies this one and then another.

        Raises:
            ValueError: both scale intensity.
        """
        if self.intensity_scale is not None and after.intensity_scale is not None:
            raise ValueError("Both transforms scale intensity. Set intensity_scale in one of them only.")
        signed = [(int(np.abs(row).argmax()), row.sum() < 0) for row in after._signs @ self._signs]
        axes = ",".join(f"{'-' if negative else ''}{'xyz'[axis]}" for axis, negative in signed)
        height = self.sensor_height_m if after.sensor_height_m is None else after.sensor_height_m
        return ScanTransform(
            scale=self.scale * after.scale,
            axes=None if axes == _UNTURNED and self.axes is None and after.axes is None else axes,
            sensor_height_m=height,
            intensity_scale=after.intensity_scale if self.intensity_scale is None else self.intensity_scale,
            mounting_deg=self._mounting_then(after),
        )

    def _mounting_then(self, after: ScanTransform) -> tuple[float, float, float] | None:
        """Combine both mountings into one that applies after the axes of both."""
        if self.mounting_deg is None:
            return after.mounting_deg
        turned = after._mounting @ after._signs @ self._mounting @ after._signs.T
        from scipy.spatial.transform import Rotation

        roll, pitch, yaw = Rotation.from_matrix(turned).as_euler("xyz", degrees=True).tolist()
        return roll, pitch, yaw

    def apply(self, cloud: PointCloud | npt.NDArray[Any]) -> PointCloud:
        """Apply the transform to a scan.

        Args:
            cloud: (N, 4) x, y, z, intensity or (N, 3) x, y, z of any real dtype, or a point cloud.

        Returns:
            A point cloud with the same timestamp, source and number of points; ``cloud`` itself if nothing
            changes.

        Raises:
            ValueError, TypeError: as for :class:`~perception.PointCloud`.
        """
        cloud = cloud if isinstance(cloud, PointCloud) else PointCloud(cloud)
        height = cloud.sensor_height_m if self.sensor_height_m is None else self.sensor_height_m
        if self.keeps_xyz and self.intensity_scale is None:
            return cloud if height == cloud.sensor_height_m else replace(cloud, sensor_height_m=height)
        points = np.empty_like(cloud.points)
        points[:, :3] = self.apply_xyz(cloud.points[:, :3])
        points[:, 3] = cloud.points[:, 3]
        if self.intensity_scale is not None:
            points[:, 3] = scaled_intensity(cloud.points[:, 3], self.intensity_scale)
        return replace(cloud, points=points, sensor_height_m=height)

    def apply_xyz(self, xyz: FloatArray) -> FloatArray:
        """Scale and turn (N, 3) float32 coordinates; without a mounting, each is rounded once."""
        made = np.empty_like(xyz)
        scale = np.float32(self.scale)
        with np.errstate(over="ignore", invalid="ignore"):
            for column, axis in enumerate(_axes(self.axes or _UNTURNED)):
                np.multiply(xyz[:, "xyz".index(axis[-1])], scale, out=made[:, column])
                if axis.startswith("-"):
                    np.negative(made[:, column], out=made[:, column])
            if self.mounting_deg is not None and any(self.mounting_deg):
                x, y, z = made.astype(np.float64).T
                # Written out, because a matrix product may sum in another order for other sizes.
                for column, (a, b, c) in enumerate(self._mounting.tolist()):
                    made[:, column] = a * x + b * y + c * z
        return made


def scaled_intensity(intensity: npt.NDArray[Any], full: float) -> FloatArray:
    """Scale intensity of a full scale to (N,) float32 in [0, 1]; NaN and infinity stay."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.asarray(intensity, dtype=np.float32) / np.float32(full)
        return np.where(np.isfinite(scaled), np.clip(scaled, 0.0, 1.0), scaled).astype(np.float32)


def _angles(angles: Sequence[float]) -> tuple[float, float, float]:
    found = [float(angle) for angle in angles]
    if len(found) != 3 or not all(map(math.isfinite, found)):
        raise ValueError(f"mounting_deg must be roll, pitch and yaw in degrees, got {tuple(angles)!r}")
    return found[0], found[1], found[2]


def _axes(axes: str) -> tuple[str, str, str]:
    """Parse three signed axes such as ``"y,-x,z"``."""
    parts = [part.strip().lower().removeprefix("+") for part in str(axes).split(",")]
    if sorted(part.removeprefix("-") for part in parts) != ["x", "y", "z"]:
        raise ValueError(
            "axes must name the scan's axes that point forward, left and up, such as 'y,-x,z' for x right"
            f" and y forward; got {str(axes)[:80]!r}"
        )
    return parts[0], parts[1], parts[2]
