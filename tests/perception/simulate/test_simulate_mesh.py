"""Solids: sizes, merging and transforms."""

import numpy as np
import pytest

from perception.simulate.mesh import (
    Mesh,
    box,
    capsule,
    cylinder,
    leaves,
    lofted_triangles,
    merge_meshes,
    pose_matrix,
)
from perception.simulate.surface import RETURN_PROBABILITY, SURFACES, Material


def bounds(mesh: Mesh) -> np.ndarray:
    return np.stack([mesh.vertices.min(0), mesh.vertices.max(0)])


def surface_area(mesh: Mesh) -> float:
    a, b, c = (mesh.vertices[mesh.triangles[:, k]].astype(np.float64) for k in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def test_box_has_its_size_place_and_area() -> None:
    mesh = box((1.0, 2.0, 3.0), (2.0, 4.0, 6.0), Material.WOOD)
    np.testing.assert_allclose(bounds(mesh), [[0, 0, 0], [2, 4, 6]])
    assert surface_area(mesh) == pytest.approx(2 * (8 + 12 + 24))
    assert len(mesh) == 12


def test_cylinder_and_capsule_reach_their_ends() -> None:
    post = cylinder((0, 0, 0), (0, 0, 2), 0.5, Material.METAL, sides=64)
    np.testing.assert_allclose(bounds(post)[:, 2], [0, 2])
    assert surface_area(post) == pytest.approx(2 * np.pi * 0.5 * 2 + 2 * np.pi * 0.25, rel=0.01)
    limb = capsule((0, 0, 1), (0, 0, 2), 0.25, Material.SKIN)
    np.testing.assert_allclose(bounds(limb)[:, 2], [0.75, 2.25], atol=1e-6)


def test_merge_keeps_triangles_and_materials() -> None:
    first, second = box((0, 0, 0), (1, 1, 1), Material.WOOD), box((5, 0, 0), (1, 1, 1), Material.METAL, 0.7)
    both = merge_meshes([first, second])
    assert len(both) == 24
    np.testing.assert_array_equal(both.vertices[both.triangles[12:]], second.vertices[second.triangles])
    assert set(both.materials) == {Material.WOOD, Material.METAL}
    assert both.reflectivity[-1] == pytest.approx(0.7)
    assert len(merge_meshes([])) == 0


def test_moved_turns_before_it_shifts() -> None:
    mesh = box((1.0, 0, 0), (0.2, 0.2, 0.2), Material.WOOD).moved(10, 0, 1, yaw_rad=np.pi / 2)
    np.testing.assert_allclose(bounds(mesh).mean(0), [10, 1, 1], atol=1e-6)
    np.testing.assert_allclose(
        pose_matrix(1, 2, 3, 0.3) @ np.linalg.inv(pose_matrix(1, 2, 3, 0.3)), np.eye(4), atol=1e-12
    )


def test_resized_fills_the_size_exactly() -> None:
    mesh = capsule((0, 0, 3), (1, 2, 5), 0.2, Material.CLOTH).resized(4.0, 2.0, 1.5)
    np.testing.assert_allclose(bounds(mesh), [[-2, -1, 0], [2, 1, 1.5]], atol=1e-6)


def test_lofted_triangles_of_a_tube_use_every_vertex() -> None:
    triangles = lofted_triangles(4, 5)
    assert triangles.shape == (2 * 3 * 5, 3)
    assert set(triangles.ravel()) == set(range(20))
    assert lofted_triangles(4, 5, closed=False).shape == (2 * 3 * 4, 3)


def test_leaves_are_one_triangle_each() -> None:
    mesh = leaves(np.zeros((7, 3), np.float32), 0.3, np.random.default_rng(0))
    assert len(mesh) == 7
    assert ((mesh.reflectivity >= 0) & (mesh.reflectivity <= 1)).all()


def test_every_material_has_a_surface() -> None:
    assert set(SURFACES) == set(Material)
    assert len(RETURN_PROBABILITY) == max(Material) + 1
