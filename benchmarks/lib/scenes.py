"""Frames to measure on: real KITTI scans where there are any, simulated ones elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.lib.environment import data_root
from perception.config import DetectorConfig
from perception.data import DataSet, Frame, open_data_set
from perception.data.kitti import WHOLE_SCANS
from perception.errors import DataError
from perception.io import load_point_cloud
from perception.types import FloatArray
from sparse_core.common.libraries import module_available


@dataclass(frozen=True)
class Frames:
    """Scans of one kind.

    Attributes:
        kind: ``"KITTI"`` or ``"simulated"``, with the folder.
        names: one a scan.
        points: (N, 4) float32 each.
    """

    kind: str
    names: tuple[str, ...]
    points: tuple[FloatArray, ...]

    def __len__(self) -> int:
        return len(self.points)


def default_data() -> Path:
    """Return ``$SPARSIGHT_DATA/kitti``, or ``../shared/data/kitti`` next to the checkout."""
    return data_root() / "kitti"


def load_frames(data: Path, count: int, *, seed: int = 0) -> Frames:
    """``count`` scans of the camera's field of view, evenly spread over the data set, else simulated ones."""
    data_set = _open(data)
    if data_set is None:
        return _simulated(count, seed)
    return _recorded([data_set[index] for index in _spread(len(data_set), count)])


def load_full_scans(data: Path, count: int) -> Frames | None:
    """Up to ``count`` scans all around the sensor; None where there are none."""
    data_set = _open(data, WHOLE_SCANS)
    return None if data_set is None else _recorded(data_set[:count])


def load_highway(count: int, *, seed: int = 0, folder: Path | None = None) -> Frames | None:
    """Simulated scans all around a sensor that sees 300 m along a highway; None without Open3D.

    Args:
        count: scans.
        seed: of the first.
        folder: .bin files of such scans, instead of simulating them.
    """
    if folder is not None:
        files = sorted(folder.glob("*.bin"))[:count]
        clouds = tuple(load_point_cloud(file).points for file in files)
        return Frames("simulated highway", tuple(file.stem for file in files), clouds)
    if not module_available("open3d"):
        return None
    from perception.simulate import SceneConfig, SensorModel, simulate_scan

    scene = SceneConfig(extent_m=300.0, characters=("highway",), car_speed_m_s=28.0)
    sensor = SensorModel.preset("long")
    seeds = range(seed, seed + count)
    scans = [simulate_scan(seed=number, scene=scene, sensor=sensor).cloud.points for number in seeds]
    return Frames("simulated highway", tuple(f"seed {number}" for number in seeds), tuple(scans))


def _open(data: Path, scans: str | None = None) -> DataSet | None:
    try:
        return open_data_set(data, scans=scans)
    except DataError:
        return None


def _recorded(frames: list[Frame]) -> Frames:
    kind = f"KITTI {Path(frames[0].cloud.source or '').parent.name}"
    return Frames(kind, tuple(frame.frame_id for frame in frames), tuple(frame.points for frame in frames))


def _spread(total: int, count: int) -> list[int]:
    return sorted({round(position) for position in np.linspace(0, total - 1, min(count, total))})


def _simulated(count: int, seed: int) -> Frames:
    # Ray casting needs Open3D, so it is only imported where there are no recordings.
    from perception.simulate import simulate_scan

    scans = [simulate_scan(seed=seed + index).cloud.points for index in range(count)]
    return Frames("simulated 64 beams", tuple(f"seed {seed + index}" for index in range(count)), tuple(scans))


def widen(config: DetectorConfig, factor: int, *, max_pillars: int | None = None) -> DetectorConfig:
    """The same detector on a range ``factor`` times as long in x and in y."""
    x0, y0, z0, x1, y1, z1 = config.pillars.closed_grid.range_m
    wide = (x0 * factor, y0 * factor, z0, x1 * factor, y1 * factor, z1)
    pillars = replace(config.pillars, range_m=wide, max_pillars=max_pillars or config.pillars.max_pillars)
    return replace(config, pillars=pillars)


def surround(config: DetectorConfig) -> DetectorConfig:
    """The same detector on a square around the sensor, as far to all sides as it looks ahead."""
    return around(config, config.pillars.closed_grid.range_m[3])


def around(config: DetectorConfig, reach_m: float) -> DetectorConfig:
    """The same detector on a square around the sensor, so far to all sides."""
    low, high = config.pillars.heights_m
    return config.with_range((-reach_m, -reach_m, low, reach_m, reach_m, high))


def tile(points: FloatArray, config: DetectorConfig, factor: int) -> FloatArray:
    """Return ``factor`` x ``factor`` adjacent copies of the points in range: a scene of equal density.

    Args:
        points: (N, 4) float32.
        config: its range is the tile.
        factor: copies along x and along y; they fill ``widen(config, factor)``.
    """
    range_m = config.pillars.closed_grid.range_m
    low, high = np.array(range_m[:3]), np.array(range_m[3:])
    inside = points[((points[:, :3] >= low) & (points[:, :3] < high)).all(axis=1)]
    width, depth = high[0] - low[0], high[1] - low[1]
    corner = low[:2] * factor - low[:2]
    copies = []
    for ix in range(factor):
        for iy in range(factor):
            moved = inside.copy()
            moved[:, 0] += corner[0] + ix * width
            moved[:, 1] += corner[1] + iy * depth
            copies.append(moved)
    return np.concatenate(copies)
