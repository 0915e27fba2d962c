"""What makes a scan one that a detector expects."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from perception import PointCloud
from perception.scans import TRAINED_SENSOR_HEIGHT_M, ScanTransform
from perception.scans.tensors import as_tensor, raised_m

POINTS = np.random.default_rng(0).uniform(-50, 50, (33, 4)).astype(np.float32)
ALL_AXES = [
    ",".join(sign + axis for sign, axis in zip(signs, axes, strict=True))
    for axes in itertools.permutations("xyz")
    for signs in itertools.product(("", "-"), repeat=3)
]


@pytest.mark.parametrize("axes", ALL_AXES)
def test_points_are_the_matrix_times_the_points(axes: str) -> None:
    change = ScanTransform(scale=0.25, axes=axes)
    applied = change.apply(POINTS).points
    np.testing.assert_array_equal(applied[:, :3], (POINTS[:, :3] @ change.matrix.T).astype(np.float32))
    np.testing.assert_array_equal(applied[:, 3], POINTS[:, 3])
    assert abs(np.linalg.det(change.matrix)) == pytest.approx(0.25**3)


@pytest.mark.parametrize("first", ALL_AXES[::5])
@pytest.mark.parametrize("second", ALL_AXES[::7])
def test_one_after_the_other(first: str, second: str) -> None:
    before, after = ScanTransform(2.0, first, 3.0), ScanTransform(0.5, second, None, 255.0)
    both = before.then(after)
    twice, once = after.apply(before.apply(POINTS)), both.apply(POINTS)
    np.testing.assert_array_equal(once.points, twice.points)
    assert once.sensor_height_m == twice.sensor_height_m == 3.0


def test_intensity_ends_at_one_and_what_is_not_finite_stays() -> None:
    points = np.zeros((5, 4), np.float32)
    points[:, 3] = [0, 51, 255, 300, np.nan]
    scaled = ScanTransform(intensity_scale=255).apply(points).points[:, 3]
    np.testing.assert_array_equal(scaled, np.float32([0, 0.2, 1, 1, np.nan]))


def test_a_cloud_keeps_what_it_knows_and_the_input_is_left_alone() -> None:
    cloud = PointCloud(POINTS.copy(), timestamp_ns=7, source="here", warnings=("said",))
    changed = ScanTransform(0.001, "y,-x,z", 2.5).apply(cloud)
    assert (changed.timestamp_ns, changed.source, changed.warnings) == (7, "here", ("said",))
    assert changed.sensor_height_m == 2.5
    np.testing.assert_array_equal(cloud.points, POINTS)
    assert ScanTransform().apply(cloud) is cloud
    assert len(ScanTransform(2.0).apply(np.zeros((0, 3)))) == 0


def test_a_detector_sees_the_height_of_the_training_data() -> None:
    cloud = ScanTransform(sensor_height_m=3.0).apply(POINTS)
    np.testing.assert_array_equal(cloud.points, POINTS)
    assert raised_m(cloud) == 3.0 - TRAINED_SENSOR_HEIGHT_M
    np.testing.assert_array_equal(as_tensor(cloud)[:, 2], POINTS[:, 2] + np.float32(raised_m(cloud)))
    assert raised_m(PointCloud(POINTS)) == raised_m(POINTS) == 0


@pytest.mark.parametrize(
    ("mounting", "seen", "there"),
    [
        (
            (0.0, 0.0, 90.0),
            (1, 0, 0),
            (0, 1, 0),
        ),  # what a sensor that looks left sees ahead of it is at the left
        ((0.0, 90.0, 0.0), (1, 0, 0), (0, 0, -1)),  # ahead of one that looks down is the ground
        ((90.0, 0.0, 0.0), (0, 1, 0), (0, 0, 1)),  # one that lies on its right side has up at its left
        ((0.0, 0.0, 180.0), (2, -1, 3), (-2, 1, 3)),
        ((180.0, 0.0, 0.0), (2, -1, 3), (2, 1, -3)),
    ],
)
def test_points_of_a_turned_sensor(mounting: tuple[float, float, float], seen: Any, there: Any) -> None:
    change = ScanTransform(mounting_deg=mounting)
    np.testing.assert_allclose(change.apply(np.float32([seen])).points[0, :3], there, atol=1e-6)
    assert not change.keeps_xyz
    assert ScanTransform(mounting_deg=(0.0, 0.0, 0.0)).apply(PointCloud(POINTS)).points is POINTS


def test_a_turned_sensor_with_axes_of_its_own() -> None:
    """Axes first, then the mounting: with the matrix, alone and one after the other, and row by row."""
    first = ScanTransform(0.001, "y,-x,z", mounting_deg=(5.0, -12.0, 33.0))
    second = ScanTransform(2.0, "-x,z,y", mounting_deg=(0.0, 3.0, -7.0))
    applied = first.apply(POINTS).points
    np.testing.assert_allclose(applied[:, :3], POINTS[:, :3] @ first.matrix.T, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(first.rotation @ first.rotation.T, np.eye(3), atol=1e-12)
    both = first.then(second)
    np.testing.assert_allclose(both.matrix, second.matrix @ first.matrix, atol=1e-12)
    assert second.then(ScanTransform()).mounting_deg == pytest.approx((0.0, 3.0, -7.0))
    alone = np.concatenate([first.apply(POINTS[k : k + 1]).points for k in range(len(POINTS))])
    np.testing.assert_array_equal(applied, alone)
    assert first.options == "--scale 0.001 --axes y,-x,z --mounting=5,-12,33"
    assert eval(first.expression) == first


def test_options_and_expression_say_the_same() -> None:
    change = ScanTransform(0.001, " Z, -x ,-Y", 0.0, 255)
    assert change.axes == "z,-x,-y"
    assert change.options == "--scale 0.001 --axes z,-x,-y --sensor-height 0.00 --intensity-scale 255"
    assert eval(change.expression) == change
    assert ScanTransform(axes="-x,-y,z").options == "--axes=-x,-y,z"
    assert ScanTransform().options == ""
    assert ScanTransform().expression == "ScanTransform()"


@pytest.mark.parametrize(
    "arguments",
    [
        {"scale": 0.0}, {"scale": -1.0}, {"scale": float("nan")}, {"scale": float("inf")},
        {"intensity_scale": 0.0}, {"sensor_height_m": float("nan")},
        {"mounting_deg": (0.0, float("inf"), 0.0)}, {"mounting_deg": (1.0, 2.0)},
        {"axes": "x,y"}, {"axes": "x,y,y"}, {"axes": "x;y;z"}, {"axes": "--x,y,z"}, {"axes": ""},
    ],
)  # fmt: skip
def test_changes_that_cannot_be(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must"):
        ScanTransform(**arguments)


def test_intensity_is_scaled_once() -> None:
    with pytest.raises(ValueError, match="Both"):
        ScanTransform(intensity_scale=255).then(ScanTransform(intensity_scale=2))
