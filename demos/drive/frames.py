"""Frames of a drive: scans with poses, from the simulator or from files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drive.town import Town, positions
from memory.exchange.poses import read_poses
from perception import PointCloud
from perception.io import find_point_clouds, load_point_cloud
from perception.simulate import Scanner, SensorModel

SECOND_NS, HOUR_NS, DAY_NS = 10**9, 3600 * 10**9, 24 * 3600 * 10**9
START_NS = round(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) * SECOND_NS
#: Start hours of the loops, driving speed, and greatest distance of remembered objects.
LOOP_HOURS, SPEED_M_S, RANGE_M = (9, 13, 17, 20), 5.0, 35.0
#: Half the field of view, equal to the camera view of the detector's training data.
FIELD_DEG = 50.0
#: Standard deviations of the robot's localization.
LOCATED_M, LOCATED_RAD = 0.05, math.radians(0.2)
#: Least points of a visible object.
LEAST_POINTS = 15


class Place(NamedTuple):
    """Position of an object.

    Attributes:
        key: number of the object.
        label: class name.
        position: (2,) metres in the map.
    """

    key: int
    label: str
    position: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Frame:
    """A scan with its pose.

    Attributes:
        name: of the frame.
        day: from 0.
        time_ns: nanoseconds since the epoch.
        cloud: points in the LiDAR frame.
        map_from_lidar: (4, 4) float64.
        visible: true objects in view and range with enough points; empty for real scans.
        present: true objects of the whole town at this moment; empty for real scans.
        standing: True if the robot stands still.
    """

    name: str
    day: int
    time_ns: int
    cloud: PointCloud
    map_from_lidar: NDArray[np.float64]
    visible: tuple[Place, ...] = ()
    present: dict[int, tuple[str, NDArray[np.float64]]] = field(default_factory=dict)
    standing: bool = False


@dataclass(frozen=True)
class DriveConfig:
    """Settings of a drive.

    Attributes:
        days: number of days.
        loops: loops per day, at most four.
        step_m: distance between scans.
        stop_scans: scans at the long stop of each day, a second apart.
        seed: of noise and walkers.
    """

    days: int
    loops: int
    step_m: float
    stop_scans: int
    seed: int

    def frames(self, town: Town) -> int:
        """Return the number of scans of the drive."""
        return self.days * (self.loops * len(town.route(self.step_m)) + self.stop_scans)


def simulated_frames(town: Town, config: DriveConfig, days: Sequence[int] | None = None) -> Iterator[Frame]:
    """Yield the frames of every loop of every day, with a stop in the first loop of a day.

    Args:
        town: with as many days.
        config: of the drive.
        days: only these; each day is independent of the others.
    """
    sensor = SensorModel.preset("64", azimuth_deg=(-FIELD_DEG, FIELD_DEG))
    for day in range(config.days) if days is None else days:
        noise = np.random.default_rng([config.seed, 41, day])
        for loop in range(config.loops):
            scene = town.scene(day, config.seed * 10_000 + day * 10 + loop)
            scanner = Scanner(scene, sensor)
            route = town.route(
                config.step_m, start=float(noise.random()), aside_m=float(noise.normal(0.0, 0.2))
            )
            stop_at = len(route) // 3
            spots = list(enumerate(route))
            if loop == 0:
                spots[stop_at:stop_at] = [(stop_at, route[stop_at])] * config.stop_scans
            start_ns = START_NS + day * DAY_NS + LOOP_HOURS[loop] * HOUR_NS
            time_s, before = 0.0, None
            for number, (place, spot) in enumerate(spots):
                standing = place == before
                if number:
                    time_s += 1.0 if standing else config.step_m / SPEED_M_S
                before = place
                scan = scanner.scan(
                    scene.world_from_lidar(spot, sensor.height_m),
                    seed=np.random.SeedSequence([config.seed, day, loop, number]),
                    time_s=time_s,
                )
                present = positions(scene, time_s)
                # Map positions are box centres, which are the objects' origins.
                away = np.hypot(scan.boxes.boxes[:, 0], scan.boxes.boxes[:, 1])
                rows = np.flatnonzero((scan.point_counts >= LEAST_POINTS) & (away <= RANGE_M))
                yield Frame(
                    f"day{day}-loop{loop}-{number:03d}",
                    day,
                    start_ns + round(time_s * 1e9),
                    scan.cloud,
                    _located(scan.world_from_lidar, noise),
                    tuple(Place(k, *present[k]) for k in scan.track_ids[rows].tolist()),
                    present,
                    standing,
                )


def _located(pose: NDArray[np.float64], noise: np.random.Generator) -> NDArray[np.float64]:
    """Return a pose with localization noise."""
    turn = float(noise.normal(0.0, LOCATED_RAD))
    error = np.eye(4)
    error[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    error[:2, 3] = noise.normal(0.0, LOCATED_M, 2)
    return pose @ error


def recorded_frames(folder: Path, poses_file: Path, *, rate_hz: float = 10.0) -> Iterator[Frame]:
    """Yield the scans of a folder with their poses.

    Args:
        folder: of ``.bin``, ``.npy``, ``.pcd`` or ``.ply`` files, in name order.
        poses_file: see :mod:`memory.exchange.poses`.
        rate_hz: scan rate if neither scans nor poses have times.

    Raises:
        DataError: a file is unreadable (named).
        ValueError: a scan has no pose.
    """
    poses = read_poses(poses_file)
    first_day: int | None = None
    for position, path in enumerate(find_point_clouds([folder])):
        cloud, pose = load_point_cloud(path), poses.find(path.stem, position)
        known = cloud.timestamp_ns if cloud.timestamp_ns is not None else pose.time_ns
        time_ns = START_NS + round(position * 1e9 / rate_hz) if known is None else known
        first_day = time_ns // DAY_NS if first_day is None else first_day
        yield Frame(path.name, time_ns // DAY_NS - first_day, time_ns, cloud, pose.map_from_lidar)
