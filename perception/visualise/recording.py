"""Common interface of viewers: scans, boxes, the robot's trajectory and its memories over time.

The same calls write a Rerun recording (``rerun_recording``) and an MCAP file for Foxglove
(``foxglove_recording``). Scans and boxes are in the LiDAR frame, marks and the trajectory in the map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb

from perception.types import Boxes3D, Detections, FloatArray, PointCloud
from perception.visualise.palette import POINT_STOPS, class_colour
from perception.visualise.scene import height_range

#: The trajectory has fewer poses than this, so that long drives stay small.
MOST_PLACES = 1000
#: Time between scans without time stamps.
STEP_NS = 100_000_000
GONE = "#8a8f98"


class RecordingMoment(NamedTuple):
    """A moment of the recording.

    Attributes:
        number: of the scan, from 0.
        time_ns: nanoseconds since the epoch, or None if unknown.
    """

    number: int
    time_ns: int | None

    @property
    def at_ns(self) -> int:
        """The time, or one derived from the number if unknown."""
        return self.number * STEP_NS if self.time_ns is None else self.time_ns


@dataclass(frozen=True)
class Mark:
    """A persistent object in the map, such as a memory.

    Attributes:
        key: unique number.
        label: class name, which determines the colour.
        text: caption.
        position: x, y, z in metres in the map.
        size_m: length, width and height; ``(0, 0, 0)`` is drawn as a point.
        yaw: radians counter-clockwise from +x.
        gone: True if the object is believed to be gone; it is drawn grey.
    """

    key: int
    label: str
    text: str
    position: tuple[float, float, float]
    size_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float = 0.0
    gone: bool = False

    @property
    def colour(self) -> tuple[float, float, float]:
        """Red, green and blue in [0, 1]."""
        return to_rgb(GONE if self.gone else class_colour(self.label).dark)


class Recording(Protocol):
    """A destination of scans, marks and numbers."""

    def scan(
        self,
        cloud: PointCloud,
        detections: Detections,
        moment: RecordingMoment,
        *,
        map_from_lidar: npt.NDArray[np.float64] | None = None,
        ground_truth: Boxes3D | None = None,
    ) -> None:
        """Record a scan with its detections, and the sensor's pose if known."""

    def marks(self, marks: Sequence[Mark], moment: RecordingMoment) -> None:
        """Record all current marks; missing ones disappear."""

    def numbers(self, values: Mapping[str, float], moment: RecordingMoment) -> None:
        """Record figures to plot over time, by name."""

    def close(self) -> None:
        """Finish the file."""


class PoseTrail:
    """Poses of the robot, thinned by half whenever they get many."""

    def __init__(self) -> None:
        self._places: list[tuple[int, npt.NDArray[np.float64]]] = []
        self._every, self._count = 1, 0

    def add(self, map_from_lidar: npt.NDArray[np.float64], time_ns: int) -> None:
        """Append a pose, (4, 4) float64."""
        if self._count % self._every == 0:
            self._places.append((time_ns, map_from_lidar))
        self._last = (time_ns, map_from_lidar)
        self._count += 1
        if len(self._places) >= MOST_PLACES:
            del self._places[1::2]
            self._every *= 2

    @property
    def poses(self) -> list[tuple[int, npt.NDArray[np.float64]]]:
        """Times and poses, including the last one."""
        if not self._count:
            return []
        return self._places if self._places[-1][0] == self._last[0] else [*self._places, self._last]


def check_file(path: Path, suffix: str) -> Path:
    """Check a file name and create its folder.

    Raises:
        ValueError: it has another suffix.
        OSError: it is a folder, or its folder cannot be created.
    """
    if path.suffix.lower() != suffix:
        raise ValueError(f"{path}: choose a name that ends in {suffix}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def height_shades(heights: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return (N, 3) red, green and blue in [0, 1] by height, for (N,) heights on a dark background."""
    stops = np.array([to_rgb(stop.dark) for stop in POINT_STOPS])
    low, high = height_range(heights)
    place = np.clip((heights - low) / (high - low), 0, 1) * (len(stops) - 1)
    return np.stack([np.interp(place, range(len(stops)), stops[:, channel]) for channel in range(3)], axis=1)


def height_colours(points: FloatArray) -> npt.NDArray[np.uint8]:
    """Return (N, 3) uint8 red, green and blue by height, for (N, 4) points."""
    return np.rint(height_shades(points[:, 2]) * 255).astype(np.uint8)
