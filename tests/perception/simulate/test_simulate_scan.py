"""Scans: reproducible, with exact boxes, counts and occlusion."""

from dataclasses import replace

import numpy as np
import pytest

from perception.simulate import (
    Scanner,
    SceneConfig,
    SceneObject,
    SensorModel,
    SimulatedScan,
    SweepMotion,
    simulate_scan,
)
from perception.simulate.annotation import occlusion_level, tight_box
from perception.simulate.ground import Ground, Spot, Street
from perception.simulate.mesh import Mesh, box, merge_meshes
from perception.simulate.objects.people import sample_pedestrian
from perception.simulate.objects.vehicles import BODIES, vehicle_mesh
from perception.simulate.scene import Scene
from perception.simulate.surface import Material

pytest.importorskip("open3d", exc_type=ImportError)

SMALL = SceneConfig(extent_m=40.0)
SENSOR = SensorModel.preset("16", azimuth_deg=(-60, 60))


def same(first: SimulatedScan, second: SimulatedScan) -> bool:
    return (
        first.cloud.points.tobytes() == second.cloud.points.tobytes()
        and first.boxes.boxes.tobytes() == second.boxes.boxes.tobytes()
        and first.occlusion.tobytes() == second.occlusion.tobytes()
        and first.point_object.tobytes() == second.point_object.tobytes()
    )


def scene_of(objects: list[tuple[str, Mesh, Spot]], scenery: list[Mesh]) -> Scene:
    """A flat place with given objects and scenery."""
    ground = Ground((Street("u", 0.0, 30.0, marked=False),), np.zeros((0, 4)), (0.0, 0.0), (0.0, 0.1, 0.0))
    surface = ground.mesh(60.0)
    items = tuple(SceneObject(7 + k, label, mesh, spot) for k, (label, mesh, spot) in enumerate(objects))
    return Scene(ground, merge_meshes([surface, *scenery]), len(surface), items, Spot(0, 0, 0))


def scan_of(
    scene: Scene, sensor: SensorModel | None = None, motion: SweepMotion | None = None
) -> SimulatedScan:
    model = sensor or SensorModel.preset("64", azimuth_deg=(-30, 30))
    return Scanner(scene, model).scan(scene.world_from_lidar(scene.start, 1.73), seed=0, motion=motion)


def car() -> Mesh:
    return vehicle_mesh(BODIES["sedan"], (4.2, 1.7, 1.45), 0.4)


def inside(points: np.ndarray, box_3d: np.ndarray, margin_m: float) -> np.ndarray:
    cosine, sine = np.cos(box_3d[6]), np.sin(box_3d[6])
    offset = points[:, :3] - box_3d[:3]
    along = offset[:, 0] * cosine + offset[:, 1] * sine
    across = -offset[:, 0] * sine + offset[:, 1] * cosine
    local = np.abs(np.stack([along, across, offset[:, 2]], axis=1))
    return np.asarray((local <= box_3d[3:6] / 2 + margin_m).all(1))


def test_the_same_seed_gives_the_same_bits() -> None:
    assert same(simulate_scan(5, scene=SMALL, sensor=SENSOR), simulate_scan(5, scene=SMALL, sensor=SENSOR))


def test_seeds_differ() -> None:
    first, second = (simulate_scan(seed, scene=SMALL, sensor=SENSOR) for seed in (5, 6))
    assert not same(first, second)


@pytest.mark.parametrize("seed", range(3))
def test_arrays_agree_with_each_other(seed: int) -> None:
    scan = simulate_scan(seed, scene=SMALL, sensor=SENSOR)
    count, objects = len(scan.cloud), len(scan.boxes)
    assert count > 1000
    assert scan.cloud.points.dtype == scan.boxes.boxes.dtype == np.float32
    assert scan.point_object.shape == (count,)
    assert scan.point_object.dtype == np.int32
    for values in (scan.point_counts, scan.occlusion, scan.occlusion_level, scan.track_ids):
        assert values.shape == (objects,)
    assert scan.world_from_lidar.shape == (4, 4)
    for row in range(objects):
        assert scan.point_counts[row] == np.count_nonzero(scan.point_object == row)
    assert np.isfinite(scan.cloud.points).all()
    intensity = scan.cloud.points[:, 3]
    assert intensity.min() >= 0
    assert intensity.max() <= 1
    assert ((scan.occlusion >= 0) & (scan.occlusion <= 1)).all()


def test_boxes_contain_the_points_of_their_objects() -> None:
    sensor = SensorModel.preset("32", azimuth_deg=(-90, 90))
    total = held = 0
    for seed in range(3):
        scan = simulate_scan(seed, scene=SMALL, sensor=sensor)
        for row in np.flatnonzero(scan.point_counts):
            points = scan.cloud.points[scan.point_object == row]
            total += len(points)
            held += np.count_nonzero(inside(points, scan.boxes.boxes[row], 0.05 + 2 * sensor.range_noise_m))
    assert total > 500
    assert held >= 0.99 * total


def test_boxes_are_tight_and_lie_in_the_lidar_frame() -> None:
    scene = scene_of([("Car", car(), Spot(12.0, 3.0, 0.5))], [])
    scan = scan_of(scene)
    np.testing.assert_allclose(scan.boxes.boxes, [[12, 3, 1.45 / 2 - 1.73, 4.2, 1.7, 1.45, 0.5]], atol=1e-3)
    assert scan.boxes.labels == ["Car"]
    assert scan.track_ids.tolist() == [7]


def test_tight_box_of_corners_is_the_box() -> None:
    corners = box((0, 0, 0), (4, 2, 1), Material.WOOD).moved(5, -3, 1, yaw_rad=1.1).vertices
    np.testing.assert_allclose(tight_box(corners, 1.1), [5, -3, 1, 4, 2, 1, 1.1], atol=1e-5)


def test_a_car_in_the_open_is_visible() -> None:
    scan = scan_of(scene_of([("Car", car(), Spot(12.0, 0.0, 0.0))], []))
    assert scan.occlusion[0] == 0
    assert scan.occlusion_level[0] == 0
    assert scan.point_counts[0] > 150


def test_a_wall_in_front_of_a_car_hides_it() -> None:
    objects = [
        ("Car", car(), Spot(12.0, 0.0, 0.0)),
        ("Pedestrian", sample_pedestrian(np.random.default_rng(0)), Spot(9, 4.6, 0)),
    ]
    high = scan_of(scene_of(objects, [box((8, 0, 1.5), (0.3, 6.0, 3.0), Material.MASONRY)]))
    assert high.occlusion[0] == 1
    assert high.occlusion_level[0] == 3
    assert high.point_counts[0] == 0
    assert high.occlusion[1] == 0
    half = scan_of(scene_of(objects, [box((8, -2, 1.5), (0.3, 4.0, 3.0), Material.MASONRY)]))
    assert 0.3 < half.occlusion[0] < 0.7
    assert half.occlusion_level[0] in (1, 2)
    assert 0 < half.point_counts[0] < scan_of(scene_of(objects, [])).point_counts[0]


def test_objects_outside_the_view_are_listed_without_points() -> None:
    scan = scan_of(scene_of([("Car", car(), Spot(-12.0, 0.0, 0.0))], []))
    assert scan.point_counts.tolist() == [0]
    assert scan.occlusion_level.tolist() == [3]


def test_a_scene_without_objects_gives_empty_labels() -> None:
    scan = scan_of(scene_of([], []))
    assert scan.boxes.boxes.shape == (0, 7)
    assert scan.point_counts.shape == scan.occlusion.shape == (0,)
    assert (scan.point_object == -1).all()


def test_occlusion_levels_are_those_of_kitti() -> None:
    levels = occlusion_level(np.array([0.0, 0.09, 0.3, 0.7, 0.94, 1.0], np.float32))
    assert levels.tolist() == [0, 0, 1, 2, 2, 3]


def test_the_ground_is_where_the_sensor_height_puts_it() -> None:
    scan = scan_of(scene_of([], []), replace(SENSOR, range_noise_m=0.0))
    near = scan.cloud.points[np.abs(scan.cloud.points[:, 1]) < 15]
    assert np.median(near[:, 2]) == pytest.approx(-1.73, abs=0.01)


def test_windows_let_rays_through_to_what_is_behind() -> None:
    wall = box((20, 0, 1.5), (0.2, 30.0, 3.0), Material.MASONRY)
    van = vehicle_mesh(BODIES["minivan"], (4.2, 1.75, 1.7), 0.4)
    scan = scan_of(scene_of([("Car", van, Spot(8.0, 0.0, np.pi / 2))], [wall]))
    points, own = scan.cloud.points, scan.point_object == 0
    far_side = own & (points[:, 0] > 8.2)
    assert far_side.sum() > 10
    assert far_side.sum() < 0.5 * own.sum()


def test_motion_during_the_turn_skews_the_points() -> None:
    wall = box((0, 20, 1.5), (60.0, 0.2, 3.0), Material.MASONRY)
    scene, sensor = scene_of([], [wall]), replace(SensorModel.preset("16"), range_noise_m=0.0)

    def wall_points(motion: SweepMotion | None) -> np.ndarray:
        points = scan_of(scene, sensor, motion).cloud.points
        return points[(points[:, 1] > 15) & (points[:, 2] > -0.5)]

    still, turning = wall_points(None), wall_points(SweepMotion(yaw_rate_rad_s=1.0))
    assert np.ptp(still[:, 1]) < 0.1
    assert np.ptp(turning[:, 1]) > 0.2
    assert not np.allclose(
        scan_of(scene, sensor, SweepMotion(speed_m_s=10.0)).cloud.points[:100],
        scan_of(scene, sensor).cloud.points[:100],
    )
