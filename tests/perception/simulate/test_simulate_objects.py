"""Shapes of vehicles and people: sizes, materials, variety."""

import numpy as np
import pytest

from perception.simulate.mesh import Mesh, sample_size
from perception.simulate.objects.people import sample_cyclist, sample_pedestrian
from perception.simulate.objects.vehicles import BODIES, sample_vehicle, vehicle_mesh
from perception.simulate.surface import Material


def size(mesh: Mesh) -> np.ndarray:
    return mesh.vertices.max(0) - mesh.vertices.min(0)


@pytest.mark.parametrize("name", BODIES)
def test_body_fills_its_size_and_stands_on_the_ground(name: str) -> None:
    wanted = BODIES[name].size_m
    mesh = vehicle_mesh(BODIES[name], wanted, 0.2)
    np.testing.assert_allclose(size(mesh), wanted, atol=1e-4)
    assert mesh.vertices[:, 2].min() == pytest.approx(0.0, abs=1e-5)
    assert mesh.triangles.min() >= 0
    assert mesh.triangles.max() < len(mesh.vertices)


@pytest.mark.parametrize("name", BODIES)
def test_body_is_no_cuboid(name: str) -> None:
    """It has windows and wheels, a bonnet lower than the roof and a roof narrower than the doors."""
    length, width, height = BODIES[name].size_m
    mesh = vehicle_mesh(BODIES[name], (length, width, height), 0.2)
    assert {Material.GLASS, Material.RUBBER, Material.PAINT, Material.REFLECTOR} <= set(mesh.materials)
    x, y, z = mesh.vertices.T
    assert z[x > 0.46 * length].max() < 0.72 * height
    roof = z > 0.97 * height
    assert np.abs(y[roof]).max() < 0.47 * width
    assert x[roof].max() < 0.3 * length


def test_cars_have_the_sizes_of_kitti() -> None:
    rng = np.random.default_rng(0)
    sampled = [sample_vehicle(rng) for _ in range(300)]
    sizes = np.array([size(mesh) for label, mesh in sampled if label == "Car"])
    assert sizes.mean(0) == pytest.approx([3.9, 1.63, 1.53], abs=0.15)
    assert sizes.std(0) == pytest.approx([0.38, 0.1, 0.1], abs=0.06)
    assert {label for label, _ in sampled} == {"Car", "Van"}


def test_sizes_stay_within_two_standard_deviations() -> None:
    rng = np.random.default_rng(1)
    body = BODIES["van"]
    for _ in range(200):
        offset = np.abs(np.array(sample_size(rng, body.size_m, body.size_sigma_m)) - body.size_m)
        assert (offset <= 2 * np.array(body.size_sigma_m) + 1e-9).all()


@pytest.mark.parametrize(
    ("sample", "mean", "tolerance"),
    [
        (sample_pedestrian, (0.75, 0.62, 1.73), (0.2, 0.1, 0.1)),
        (sample_cyclist, (1.76, 0.62, 1.73), (0.1, 0.1, 0.12)),
    ],
)
def test_people_have_the_sizes_of_kitti(sample: object, mean: tuple, tolerance: tuple) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([size(sample(rng)) for _ in range(120)])  # type: ignore[operator]
    assert (np.abs(sizes.mean(0) - mean) < tolerance).all(), sizes.mean(0)
    assert sizes[:, 0].std() > 0.02


def test_people_stand_on_the_ground_and_differ() -> None:
    rng = np.random.default_rng(0)
    walking, standing = sample_pedestrian(rng, walking=True), sample_pedestrian(rng, walking=False)
    for mesh in (walking, standing, sample_cyclist(rng)):
        assert mesh.vertices[:, 2].min() == pytest.approx(0.0, abs=1e-5)
        np.testing.assert_allclose((mesh.vertices.min(0) + mesh.vertices.max(0))[:2], 0, atol=1e-5)
    assert not np.allclose(size(walking), size(standing))
