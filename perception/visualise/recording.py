"""What a viewer is shown over time: scans, boxes, the way of the robot and what it remembers.

The same calls write a Rerun recording (``rerun_recording``) and an MCAP file for Foxglove
(``foxglove_recording``). Scans and boxes are in the LiDAR frame, marks and the way in the map.
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

#: The way of the robot is thinned to less than this, so that long drives stay small.
MOST_PLACES = 1000
#: Scans that know no time are laid so far apart.
STEP_NS = 100_000_000
GONE = "#8a8f98"


class RecordingMoment(NamedTuple):
    """A place in the recording.

    Attributes:
        number: of the scan, from 0.
        time_ns: nanoseconds since the epoch, or ``None`` where nobody knows.
    """

    number: int
    time_ns: int | None

    @property
    def at_ns(self) -> int:
        """The time, or one by the number where none is known."""
        return self.number * STEP_NS if self.time_ns is None else self.time_ns


@dataclass(frozen=True)
class Mark:
    """Something in the map that stays, such as a memory.

    Attributes:
        key: tells it from others.
        label: class name; chooses the colour.
        text: shown beside it.
        position: x, y, z in metres in the map.
        size_m: length, width and height; a place without a size is ``(0, 0, 0)`` and drawn as a point.
        yaw: radians counter-clockwise from +x.
        gone: it is believed not to be there any more, and drawn grey.
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
    """Somewhere that all of it goes."""

    def scan(
        self,
        cloud: PointCloud,
        detections: Detections,
        moment: RecordingMoment,
        *,
        map_from_lidar: npt.NDArray[np.float64] | None = None,
        ground_truth: Boxes3D | None = None,
    ) -> None:
        """A scan with what was found in it, and the pose of the sensor where it is known."""

    def marks(self, marks: Sequence[Mark], moment: RecordingMoment) -> None:
        """Everything that is in the map now; what is not among it disappears."""

    def numbers(self, values: Mapping[str, float], moment: RecordingMoment) -> None:
        """Figures to plot over time, by name."""

    def close(self) -> None:
        """Finish the file."""


class Way:
    """Where the robot has been, thinned by half whenever it gets long."""

    def __init__(self) -> None:
        self._places: list[tuple[int, npt.NDArray[np.float64]]] = []
        self._every, self._count = 1, 0

    def add(self, map_from_lidar: npt.NDArray[np.float64], time_ns: int) -> None:
        """Go on to a pose, (4, 4) float64."""
        if self._count % self._every == 0:
            self._places.append((time_ns, map_from_lidar))
        self._last = (time_ns, map_from_lidar)
        self._count += 1
        if len(self._places) >= MOST_PLACES:
            del self._places[1::2]
            self._every *= 2

    @property
    def poses(self) -> list[tuple[int, npt.NDArray[np.float64]]]:
        """Times and poses, ending where the robot is now."""
        if not self._count:
            return []
        return self._places if self._places[-1][0] == self._last[0] else [*self._places, self._last]


def check_file(path: Path, suffix: str) -> Path:
    """A file that is about to be written, with its folder.

    Raises:
        ValueError: it has another suffix.
        OSError: it is a folder, or its folder cannot be made.
    """
    if path.suffix.lower() != suffix:
        raise ValueError(f"{path}: expected a name that ends in {suffix}")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def height_shades(heights: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """(N, 3) red, green and blue in [0, 1], for (N,) heights of points on a dark ground."""
    stops = np.array([to_rgb(stop.dark) for stop in POINT_STOPS])
    low, high = height_range(heights)
    place = np.clip((heights - low) / (high - low), 0, 1) * (len(stops) - 1)
    return np.stack([np.interp(place, range(len(stops)), stops[:, channel]) for channel in range(3)], axis=1)


def height_colours(points: FloatArray) -> npt.NDArray[np.uint8]:
    """(N, 3) red, green and blue from 0 to 255 by height, for (N, 4) points."""
    return np.rint(height_shades(points[:, 2]) * 255).astype(np.uint8)
