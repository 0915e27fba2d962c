"""Where a camera sees boxes."""

from __future__ import annotations

import numpy as np
import pytest

from perception.data import CameraCalibration
from perception.data.crops import Rectangle, seen_rectangles, turned_calibration
from perception.io.transform import ScanTransform

CAMERA, SIZE = CameraCalibration.default(), (1242, 375)
#: Ahead, far ahead, behind, beside the picture, at its left border with more and with less than half inside.
BOXES = np.array(
    [
        [20.27, 0, -0.08, 4, 2, 1.5, 0],
        [80, 0, 0, 0.8, 0.6, 1.8, 0],
        [-20, 0, 0, 4, 2, 1.5, 0],
        [10, 30, 0, 4, 2, 1.5, 0],
        [10.27, 8, 0, 0.2, 2, 1.5, 0],
        [10.27, 9.2, 0, 0.2, 2, 1.5, 0],
    ],
    np.float32,
)


def test_what_is_seen_has_a_rectangle_with_some_room_around_it() -> None:
    found = seen_rectangles(BOXES, CAMERA, SIZE)
    # Its near face: 18 m ahead, 2 m wide and 1.5 m high; 720 pixels stand for a metre at one metre.
    width, height = 720 * 2 / 18, 720 * 1.5 / 18
    (left, top, right, bottom), *rest = found
    assert (left, right) == (int(620 - 0.6 * width), int(620 + 0.6 * width) + 1)
    assert (top, bottom) == pytest.approx((187 - 0.6 * height, 187 + 0.6 * height), abs=1.01)
    assert rest[:3] == ["small", "outside", "outside"]
    assert isinstance(rest[3], Rectangle)
    assert rest[3].left == 0
    assert rest[4] == "outside"


def test_least_pixels_are_those_of_the_shorter_side() -> None:
    box = BOXES[1:2]
    # 0.6 m wide at 79.3 m.
    assert seen_rectangles(box, CAMERA, SIZE, least_pixels=5)[0] != "small"
    assert seen_rectangles(box, CAMERA, SIZE, least_pixels=6) == ["small"]
    with pytest.raises(ValueError, match="least_pixels must be at least 1, got 0"):
        seen_rectangles(box, CAMERA, SIZE, least_pixels=0)


def test_nothing_and_what_is_no_number() -> None:
    assert seen_rectangles(np.zeros((0, 7)), CAMERA, SIZE) == []
    assert seen_rectangles(np.full((1, 7), np.nan), CAMERA, SIZE) == ["outside"]


def test_a_calibration_is_of_the_scans_own_axes() -> None:
    # x to the right and y forward; millimetres are for the points alone.
    transform = ScanTransform(scale=0.001, axes="y,-x,z")
    own = CameraCalibration(
        CAMERA.image_from_camera,
        CAMERA.rectification,
        np.array([[1.0, 0, 0, 0], [0, 0, -1, -0.08], [0, 1, 0, -0.27]]),
    )
    turned = turned_calibration(own, transform)
    np.testing.assert_allclose(turned.camera_from_lidar_raw, CAMERA.camera_from_lidar_raw, atol=1e-12)
    assert seen_rectangles(BOXES, turned, SIZE) == seen_rectangles(BOXES, CAMERA, SIZE)
