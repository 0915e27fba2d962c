"""Scenes: terrain, streets, and nothing on top of something else."""

import numpy as np
import pytest

from perception.boxes import rotated_iou_bev
from perception.simulate import SceneConfig, build_scene
from perception.simulate.ground import Ground, Spot, Street
from perception.simulate.layout import CHARACTERS, Occupancy
from perception.simulate.mesh import merge_meshes
from perception.simulate.objects.scenery import clutter, fence, hedge, tree
from perception.simulate.surface import Material


def flat_ground(**changes: object) -> Ground:
    fields = {
        "streets": (Street("u", 0.0, 4.0), Street("v", 20.0, 3.0)),
        "waves": np.zeros((0, 4)),
        "slope": (0.0, 0.0),
        "bend": (0.0, 0.1, 0.0),
        **changes,
    }
    return Ground(**fields)  # type: ignore[arg-type]


def test_ground_has_a_kerb_and_materials() -> None:
    ground = flat_ground()
    u, v = np.array([0.0, 0.0, 0.0, 20.0]), np.array([0.0, 4.5, 8.0, 8.0])
    np.testing.assert_allclose(ground.height_m(u, v), [0, 0.12, 0.12, 0])
    points = np.stack([u + 4.5, v, np.zeros(4)], axis=1).astype(np.float32)
    material, reflectivity = ground.surface(points)
    assert material.tolist() == [Material.ASPHALT, Material.PAVEMENT, Material.GRASS, Material.PAVEMENT]
    assert ((reflectivity > 0) & (reflectivity < 1)).all()


def test_ground_mesh_follows_the_height() -> None:
    ground = flat_ground(slope=(0.01, -0.02), waves=np.array([[0.2, 0.05, 0.02, 1.0]]), bend=(3.0, 0.03, 0.5))
    vertices = ground.mesh(30.0).vertices.astype(np.float64)
    u = vertices[:, 0]
    v = vertices[:, 1] - ground.bend_m(u)
    on_kerb = ground.on_road(u, v, 0.011) != ground.on_road(u, v, -0.011)
    np.testing.assert_allclose(vertices[~on_kerb, 2], ground.height_m(u, v)[~on_kerb], atol=1e-4)


def test_poses_follow_the_bend_of_the_street() -> None:
    ground = flat_ground(bend=(3.0, 0.03, 0.5))
    here, ahead = ground.pose(Spot(10.0, 0.0, 0.0)), ground.pose(Spot(10.01, 0.0, 0.0))
    step = ahead[:2, 3] - here[:2, 3]
    assert np.arctan2(step[1], step[0]) == pytest.approx(np.arctan2(here[1, 0], here[0, 0]), abs=1e-3)


def test_street_spots_are_left_of_the_direction() -> None:
    assert Street("u", 5.0, 4.0).spot(3.0, 1.0) == Spot(3.0, 6.0, 0.0)
    assert Street("v", 5.0, 4.0).spot(3.0, 1.0) == Spot(4.0, 3.0, np.pi / 2)


def test_occupancy_refuses_what_overlaps() -> None:
    taken = Occupancy()
    assert taken.claim(Spot(0, 0, 0), 4, 2)
    assert not taken.claim(Spot(3, 0, 0), 4, 2)
    assert taken.claim(Spot(0, 4.0, np.pi / 2), 4, 2)


@pytest.mark.parametrize("seed", range(3))
def test_objects_do_not_stand_in_each_other_or_in_the_robot(seed: int) -> None:
    scene = build_scene(seed, SceneConfig(extent_m=60.0, plants_per_100m=0.0))
    boxes = []
    for item in scene.objects:
        length, width, height = item.mesh.vertices.max(0) * 2
        boxes.append([item.spot.u, item.spot.v, 0, length, width, height, item.spot.heading_rad])
    boxes.append([scene.start.u, scene.start.v, 0, 4.0, 1.8, 1.5, scene.start.heading_rad])
    overlap = np.array(rotated_iou_bev(np.array(boxes), np.array(boxes)))
    np.fill_diagonal(overlap, 0)
    assert overlap.max() < 1e-6


def test_a_scene_has_what_its_configuration_asks_for() -> None:
    labels = {item.label for seed in range(3) for item in build_scene(seed).objects}
    assert {"Car", "Van", "Pedestrian", "Cyclist"} <= labels
    bare = SceneConfig(
        parked_fill=0, drive_cars=0, moving_cars_per_100m=0, pedestrians_per_100m=0, cyclists_per_100m=0
    )
    assert build_scene(0, bare).objects == ()


def test_track_ids_are_unique_and_cross_traffic_waits() -> None:
    scene = build_scene(3)
    assert len({item.track_id for item in scene.objects}) == len(scene.objects)
    cars = [item for item in scene.objects if item.label == "Car"]
    crossing = [item for item in cars if abs(np.cos(item.spot.heading_rad)) < 0.5]
    assert all(item.speed_m_s == 0 for item in crossing)


@pytest.mark.parametrize("character", CHARACTERS)
def test_every_kind_of_neighbourhood_can_be_built(character: str) -> None:
    scene = build_scene(1, SceneConfig(extent_m=40.0, characters=(character,)))
    assert 0 < scene.ground_triangles < len(scene.static)
    assert np.isfinite(scene.static.vertices).all()


@pytest.mark.parametrize(
    "changes", [{"characters": ("moon",)}, {"characters": ()}, {"extent_m": 0.0}, {"parked_fill": -1.0}]
)
def test_impossible_configurations_are_refused(changes: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        SceneConfig(**changes)


def test_scenery_stands_on_the_ground() -> None:
    rng = np.random.default_rng(0)
    meshes = [tree(8.0, rng), tree(6.0, rng, conifer=True), hedge(5, 0.8, 1.2, rng), fence(6, 1.2, rng)]
    meshes += [clutter(rng) for _ in range(20)]
    for mesh in meshes:
        assert -0.8 < mesh.vertices[:, 2].min() < 0.3
    assert len(merge_meshes(meshes)) == sum(map(len, meshes))
