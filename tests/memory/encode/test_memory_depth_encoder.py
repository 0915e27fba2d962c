"""Vectors of depth images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from place_shares import share_found

from memory.encode.depth import DepthEncoder, depth_points

CAMERA = np.array([[120.0, 0, 64], [0, 120, 48], [0, 0, 1]])


def room(yaw: float = 0.0, pitch: float = 0.0, shift: float = 0.0) -> np.ndarray:
    """(96, 128) depth of the inside of a box of 8 x 6 x 3 m with a cupboard, seen from near its middle."""
    column, row = np.meshgrid(np.arange(128), np.arange(96))
    rays = np.stack([np.ones((96, 128)), -(column - 64) / 120, -(row - 48) / 120], axis=-1)
    tilt = np.array([[np.cos(pitch), 0, np.sin(pitch)], [0, 1, 0], [-np.sin(pitch), 0, np.cos(pitch)]])
    turn = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
    world = rays @ (turn @ tilt).T
    origin = np.array([shift, 0.3, 1.4])
    best = np.full((96, 128), np.inf)
    for low, high in (([-4, -3, 0], [4, 3, 3]), ([2.5, 0.5, 0], [3.5, 2.0, 2.0])):
        with np.errstate(divide="ignore", invalid="ignore"):
            one, other = (np.array(low) - origin) / world, (np.array(high) - origin) / world
        near, far = np.minimum(one, other).max(axis=-1), np.maximum(one, other).min(axis=-1)
        hit = np.where(near > 0, near, far)
        best = np.where((far >= near) & (far > 0), np.minimum(best, hit), best)
    return best


def test_points_go_back_through_the_camera() -> None:
    depth = np.zeros((4, 6))
    depth[1, 4], depth[3, 2] = 2.0, 99.0
    camera = np.array([[2.0, 0, 3], [0, 2, 2], [0, 0, 1]])
    points = depth_points(depth, camera)
    np.testing.assert_allclose(points, [[2.0, -1.0, 1.0]])
    depth[depth == 0] = np.nan
    np.testing.assert_allclose(depth_points(depth, camera), points)


def test_a_small_move_changes_less_than_a_turn() -> None:
    encoder = DepthEncoder()
    here, near, turned = (
        encoder.encode(room(*pose), CAMERA) for pose in ((0, 0, 0), (0.02, 0, 0.1), (1.6, 0, 0))
    )
    assert here.shape == (encoder.dim,) == (256,)
    assert here.dtype == np.float32
    assert np.linalg.norm(here) == pytest.approx(1.0, abs=1e-5)
    assert here @ near > 0.9 > here @ turned + 0.1


def test_gravity_takes_out_a_nod() -> None:
    encoder, pitch = DepthEncoder(field_deg=(50.0, 24.0), layout_weight=0.0), 0.15
    level = encoder.encode(room(), CAMERA)
    nodding = room(pitch=pitch)
    up = [0.0, -np.cos(pitch), -np.sin(pitch)]
    corrected = encoder.encode(nodding, CAMERA, up=up)
    wrong = encoder.encode(nodding, CAMERA, up=[0.0, -np.cos(pitch), np.sin(pitch)])
    assert level @ corrected > 0.999 > level @ encoder.encode(nodding, CAMERA) > level @ wrong + 0.05


def test_missing_readings_and_flat_views_have_vectors() -> None:
    encoder, depth = DepthEncoder(), room()
    holes = np.where(np.random.default_rng(0).random(depth.shape) < 0.3, 0.0, depth)
    assert encoder.encode(depth, CAMERA) @ encoder.encode(holes, CAMERA) > 0.95
    one = np.zeros((96, 128))
    one[48, 64] = 1.0
    assert np.linalg.norm(encoder.encode(one, CAMERA)) == pytest.approx(1.0, abs=1e-5)
    bare = DepthEncoder(layout_weight=0.0)
    assert np.linalg.norm(bare.encode(one, CAMERA)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("depth", "camera", "up", "words"),
    [
        (np.zeros(4), CAMERA, None, "depth_m"),
        (np.ones((4, 4)), np.eye(2), None, "intrinsics"),
        (np.ones((4, 4)), -np.eye(3), None, "focal"),
        (np.zeros((96, 128)), CAMERA, None, "no reading"),
        (np.ones((96, 128)), CAMERA, (0, 0, 0), "up"),
        (np.ones((96, 128)), CAMERA, (0, 1), "up"),
    ],
)
def test_bad_images(depth: np.ndarray, camera: np.ndarray, up: tuple[float, ...] | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DepthEncoder().encode(depth, camera, up=up)


@pytest.mark.parametrize(
    "wrong", [{"columns": 0}, {"field_deg": (0, 10)}, {"range_m": (1, 0.5)}, {"layout_weight": 2}]
)
def test_bad_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DepthEncoder(**wrong)  # type: ignore[arg-type]


def test_places_of_a_real_room_are_found_by_depth_alone(data_directory: Path) -> None:
    folder = data_directory / "rgbd_indoor"
    if not folder.is_dir():
        pytest.skip(f"no indoor images at {folder} (set SPARSIGHT_DATA)")
    pillow = pytest.importorskip("PIL.Image")
    camera, encoder = np.loadtxt(folder / "camera-intrinsics.txt"), DepthEncoder()
    names = sorted(path.name.removesuffix(".pose.txt") for path in folder.glob("*.pose.txt"))
    poses, vectors = [], []
    for name in names:
        poses.append(np.loadtxt(folder / f"{name}.pose.txt"))
        with pillow.open(folder / f"{name}.depth.png") as file:
            depth = np.array(file)[::4, ::4].astype(np.float64)
        depth[(depth == 0) | (depth == 65535)] = np.nan
        vectors.append(encoder.encode(depth / 1000, camera / np.array([[4], [4], [1]])))
    assert share_found(poses, np.stack(vectors)) >= 0.95
