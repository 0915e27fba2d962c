"""Drives: poses, persistent objects and motion."""

from dataclasses import replace

import numpy as np
import pytest

from perception.simulate import (
    SceneConfig,
    SensorModel,
    SimulatedScan,
    build_scene,
    scan_along,
    simulate_sequence,
)

pytest.importorskip("open3d", exc_type=ImportError)

SMALL = SceneConfig(extent_m=50.0, plants_per_100m=2.0)
SENSOR = SensorModel.preset("16", azimuth_deg=(-45, 45))


def drive(seed: int = 1, frames: int = 4, **options: object) -> list[SimulatedScan]:
    return list(simulate_sequence(seed, frames, scene=SMALL, sensor=SENSOR, interval_s=0.5, **options))  # type: ignore[arg-type]


def world_centers(scan: SimulatedScan) -> dict[int, np.ndarray]:
    centers = np.c_[scan.boxes.boxes[:, :3], np.ones(len(scan.boxes))] @ scan.world_from_lidar.T
    return dict(zip(scan.track_ids.tolist(), centers[:, :3], strict=True))


def test_the_robot_moves_at_its_speed() -> None:
    poses = [scan.world_from_lidar for scan in drive(speed_m_s=6.0)]
    steps = np.linalg.norm(np.diff([pose[:2, 3] for pose in poses], axis=0), axis=1)
    np.testing.assert_allclose(steps, 3.0, rtol=0.05)
    for pose in poses:
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-9)


def test_objects_keep_their_numbers_and_parked_ones_their_place() -> None:
    scans = drive()
    first, last = world_centers(scans[0]), world_centers(scans[-1])
    common = sorted(set(first) & set(last))
    speeds = {item.track_id: item.speed_m_s for item in build_scene(1, SMALL).objects}
    assert {speeds[number] > 0 for number in common} == {True, False}
    for number in common:
        moved = np.linalg.norm(last[number][:2] - first[number][:2])
        assert moved == pytest.approx(speeds[number] * 1.5, rel=0.05, abs=0.02)
    labels = [dict(zip(s.track_ids.tolist(), s.boxes.labels, strict=True)) for s in scans]
    assert all(labels[0][number] == labels[-1][number] for number in common)


def test_time_stamps_follow_the_interval() -> None:
    assert [scan.cloud.timestamp_ns for scan in drive(frames=3)] == [0, 500_000_000, 1_000_000_000]


def test_a_drive_is_reproducible_and_its_noise_is_not_repeated() -> None:
    first, again = drive(frames=2), drive(frames=2)
    assert all(
        a.cloud.points.tobytes() == b.cloud.points.tobytes() for a, b in zip(first, again, strict=True)
    )
    still = drive(frames=2, speed_m_s=0.0)
    assert still[0].cloud.points.tobytes() != still[1].cloud.points.tobytes()


def test_rolling_shutter_changes_points_but_not_poses() -> None:
    (plain, *_), (rolling, *_) = drive(frames=2), drive(frames=2, rolling_shutter=True)
    np.testing.assert_array_equal(plain.world_from_lidar, rolling.world_from_lidar)
    assert plain.cloud.points.tobytes() != rolling.cloud.points.tobytes()


def test_scan_along_visits_the_given_places() -> None:
    scene = build_scene(2, SMALL)
    spots = [scene.start, scene.start._replace(u=5.0, heading_rad=1.0)]
    scans = list(scan_along(scene, spots, seed=0, sensor=SENSOR))
    assert scans[1].world_from_lidar[0, 3] == pytest.approx(5.0)
    without = list(scan_along(replace(scene, objects=()), spots[:1], seed=0, sensor=SENSOR))
    assert len(without[0].boxes) == 0


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="frames"):
        simulate_sequence(0, -1)
    with pytest.raises(ValueError, match="interval_s"):
        simulate_sequence(0, 1, interval_s=0.0)
    assert drive(frames=0) == []
