"""Rectangles of boxes in the camera's picture, for cutting out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.data.camera import CameraCalibration
from perception.data.projection import objects_from_boxes
from perception.io.transform import ScanTransform

#: Reasons for no rectangle: too much of the box is out of view, or it is too small.
Unseen = Literal["outside", "small"]
#: Smallest side of a rectangle in pixels.
LEAST_PIXELS = 16
#: Margin on each side, relative to the size.
_MARGIN = 0.1
#: Smallest visible fraction of a rectangle.
_LEAST_INSIDE = 0.5


class Rectangle(NamedTuple):
    """Part of a picture.

    Attributes:
        left, top, right, bottom: in pixels, inside the picture; right and bottom are the first ones outside.
    """

    left: int
    top: int
    right: int
    bottom: int


def seen_rectangles(
    boxes: npt.ArrayLike,
    calibration: CameraCalibration,
    image_size: tuple[int, int],
    *,
    least_pixels: int = LEAST_PIXELS,
) -> list[Rectangle | Unseen]:
    """Return the rectangle of each box: its projection with a margin of a tenth, clipped to the picture.

    Occlusion is unknown: the rectangle of a hidden object shows what hides it.

    Args:
        boxes: (M, 7) x, y, z, length, width, height (metres), yaw (radians), LiDAR frame.
        calibration: calibration of the frame.
        image_size: width and height in pixels.
        least_pixels: smallest side of a projection; smaller ones give ``"small"``.

    Returns:
        M rectangles, or ``"outside"`` if less than half of the projection is inside the picture.

    Raises:
        ValueError: ``boxes`` is not (M, 7), or ``least_pixels`` is below 1.
    """
    if least_pixels < 1:
        raise ValueError(f"least_pixels must be at least 1, got {least_pixels}")
    rows = np.asarray(boxes, np.float64)
    # The objects know how much of them is outside.
    objects = objects_from_boxes(rows, [""] * len(rows), None, calibration, image_size=image_size)
    found: list[Rectangle | Unseen] = []
    for item in objects:
        left, top, right, bottom = item.box_2d
        if item.truncated > 1.0 - _LEAST_INSIDE:
            found.append("outside")
        elif min(right - left, bottom - top) < least_pixels:
            found.append("small")
        else:
            across, down = _MARGIN * (right - left), _MARGIN * (bottom - top)
            found.append(
                Rectangle(
                    max(0, math.floor(left - across)),
                    max(0, math.floor(top - down)),
                    min(image_size[0], math.ceil(right + across) + 1),
                    min(image_size[1], math.ceil(bottom + down) + 1),
                )
            )
    return found


def turned_calibration(calibration: CameraCalibration, transform: ScanTransform) -> CameraCalibration:
    """Return the calibration for transformed scans, from that of the original axes in metres."""
    turn = transform.matrix / transform.scale
    raw = calibration.camera_from_lidar_raw
    return replace(calibration, camera_from_lidar_raw=np.column_stack([raw[:, :3] @ turn.T, raw[:, 3]]))
