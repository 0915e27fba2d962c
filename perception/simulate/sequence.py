"""Drives: scans of one scene from a moving robot, with ego poses and persistent track ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from perception.simulate.ground import Spot
from perception.simulate.scan import Scanner, SimulatedScan, SweepMotion
from perception.simulate.scene import Scene, SceneConfig, build_scene
from perception.simulate.sensor import SensorModel


def simulate_sequence(
    seed: int,
    frames: int,
    *,
    scene: SceneConfig | None = None,
    sensor: SensorModel | None = None,
    speed_m_s: float = 8.0,
    interval_s: float = 0.1,
    rolling_shutter: bool = False,
) -> Iterator[SimulatedScan]:
    """Simulate a drive along the first street of a random scene.

    Args:
        seed: the same arguments give the same scans, bit by bit.
        frames: number of scans.
        scene: settings of the scene; its extent should exceed the length of the drive.
        sensor: by default a 64-beam sensor.
        speed_m_s: speed of the robot.
        interval_s: time between scans.
        rolling_shutter: True if the robot moves during a sensor turn, which skews the points.

    Yields:
        One scan after another; ``world_from_lidar`` is the ego pose, ``track_ids`` persist.

    Raises:
        ImportError: Open3D is missing.
        ValueError: ``frames`` is negative or ``interval_s`` is not positive.
    """
    if frames < 0 or interval_s <= 0:
        raise ValueError(f"frames must be >= 0 and interval_s > 0, got {frames} and {interval_s}")
    config = SceneConfig() if scene is None else scene
    place = build_scene(seed, config)
    start = place.start
    spots = [
        Spot(start.u + speed_m_s * interval_s * k, start.v, 0.0) if k else start._replace(heading_rad=0.0)
        for k in range(frames)
    ]
    return scan_along(
        place, spots, seed=seed, sensor=sensor, interval_s=interval_s, rolling_shutter=rolling_shutter
    )


def scan_along(
    scene: Scene,
    spots: Sequence[Spot],
    *,
    seed: int,
    sensor: SensorModel | None = None,
    interval_s: float = 0.1,
    start_time_s: float = 0.0,
    rolling_shutter: bool = False,
) -> Iterator[SimulatedScan]:
    """Scan a scene from a list of positions.

    Args:
        scene: from ``build_scene``.
        spots: positions of the robot, in street coordinates.
        seed: of jitter, noise and lost returns.
        sensor: by default a 64-beam sensor.
        interval_s: time between scans.
        start_time_s: time of the first scan, which moves the objects.
        rolling_shutter: True if the robot moves during a sensor turn.

    Yields:
        One scan per position.

    Raises:
        ImportError: Open3D is missing.
    """
    model = SensorModel.preset("64") if sensor is None else sensor
    scanner = Scanner(scene, model)
    poses = [scene.world_from_lidar(spot, model.height_m) for spot in spots]
    for k, pose in enumerate(poses):
        motion = _motion(poses, k, interval_s) if rolling_shutter else None
        yield scanner.scan(
            pose,
            seed=np.random.SeedSequence([seed, 3, k]),
            time_s=start_time_s + k * interval_s,
            motion=motion,
            source=f"simulated {model.name}-beam drive, seed {seed}, frame {k}",
        )


def _motion(poses: list[npt.NDArray[np.float64]], index: int, interval_s: float) -> SweepMotion:
    """Return speed and yaw rate between a pose and its neighbour."""
    if len(poses) < 2:
        return SweepMotion()
    first = min(index, len(poses) - 2)
    step = np.linalg.inv(poses[first]) @ poses[first + 1]
    return SweepMotion(float(step[0, 3]) / interval_s, float(np.arctan2(step[1, 0], step[0, 0])) / interval_s)
