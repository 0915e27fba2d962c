"""Conversion between labels in the camera frame and boxes in the LiDAR frame (docs/conventions.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from perception.boxes import wrap_angle
from perception.data.camera import DEFAULT_IMAGE_SIZE, DONT_CARE, CameraCalibration, CameraObject, Matrix
from perception.types import Boxes3D

#: ``box_2d`` of an object behind the camera.
BEHIND_CAMERA_BOX = (0.0, 0.0, 0.0, 0.0)


#: Boxes are clipped at this distance in front of the camera before projection.
_NEAR_PLANE_M = 0.1


def boxes_from_objects(objects: Iterable[CameraObject], calibration: CameraCalibration) -> Boxes3D:
    """Convert objects to boxes in the LiDAR frame, in order and without DontCare.

    The centre is exact. Yaw is the bearing of the heading vector (cos r, 0, -sin r) in the LiDAR frame, which
    is ``-rotation_y - pi/2`` for a camera along x. The small tilt between the camera's y axis and the LiDAR's
    z axis is ignored, because boxes have neither roll nor pitch.
    """
    kept = [item for item in objects if item.type != DONT_CARE]
    lidar_from_camera = calibration.lidar_from_camera
    boxes = np.zeros((len(kept), 7))
    for row, item in zip(boxes, kept, strict=True):
        x, y, z = item.location
        row[:3] = (lidar_from_camera @ [x, y - item.height_m / 2, z, 1.0])[:3]
        row[3:6] = item.length_m, item.width_m, item.height_m
        heading = lidar_from_camera[:3, :3] @ [np.cos(item.rotation_y), 0.0, -np.sin(item.rotation_y)]
        row[6] = wrap_angle(math.atan2(heading[1], heading[0]))
    return Boxes3D(boxes.astype(np.float32), [item.type for item in kept])


def objects_from_boxes(
    boxes: npt.ArrayLike,
    labels: Sequence[str],
    scores: npt.ArrayLike | None,
    calibration: CameraCalibration,
    *,
    image_size: tuple[int, int] = DEFAULT_IMAGE_SIZE,
) -> list[CameraObject]:
    """Convert all boxes to objects with 2-D box and observation angle; inverse of ``boxes_from_objects``.

    ``box_2d`` is the projection of the part in front of the camera, clipped to the image. It is empty on the
    border for boxes outside the image, and ``BEHIND_CAMERA_BOX`` behind the camera. Labels (without scores)
    get ``truncated``, the fraction of the projection outside the image, and ``occluded`` 0. Detections get -1
    for both, as in KITTI's result format.

    Args:
        boxes: (M, 7) x, y, z, length, width, height (metres), yaw (radians), LiDAR frame.
        labels: M class names.
        scores: (M,) confidences, or None for labels.
        calibration: calibration of the frame.
        image_size: width and height in pixels.

    Raises:
        ValueError: the lengths differ or ``boxes`` is not (M, 7).
    """
    rows = np.asarray(boxes, np.float64)
    rows = rows.reshape(0, 7) if rows.size == 0 else rows
    if rows.ndim != 2 or rows.shape[1] != 7:
        raise ValueError(f"boxes must have shape (M, 7), got {rows.shape}")
    confidences = None if scores is None else np.asarray(scores, np.float64).reshape(-1)
    if len(labels) != len(rows) or (confidences is not None and len(confidences) != len(rows)):
        count = "no" if confidences is None else len(confidences)
        raise ValueError(
            f"boxes, labels and scores must be equally long, got {len(rows)}, {len(labels)}, {count}"
        )
    return [
        _object_from_box(
            row, label, None if confidences is None else float(confidences[index]), calibration, image_size
        )
        for index, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]


def _object_from_box(
    box: Matrix, label: str, score: float | None, calibration: CameraCalibration, image_size: tuple[int, int]
) -> CameraObject:
    length, width, height = (float(size) for size in box[3:6])
    centre = calibration.camera_from_lidar @ [box[0], box[1], box[2], 1.0]
    location = (float(centre[0]), float(centre[1] + height / 2), float(centre[2]))
    rotation_y = _rotation_y(float(box[6]), calibration)
    corners = _camera_corners(location, (length, width, height), rotation_y)
    box_2d, outside = _project_box(corners, calibration.image_from_camera, image_size)
    return CameraObject(
        type=label,
        truncated=outside if score is None else -1.0,
        occluded=0 if score is None else -1,
        alpha=wrap_angle(rotation_y - math.atan2(location[0], location[2])),
        box_2d=box_2d,
        height_m=height,
        width_m=width,
        length_m=length,
        location=location,
        rotation_y=rotation_y,
        score=score,
    )


def _rotation_y(yaw_rad: float, calibration: CameraCalibration) -> float:
    """Return the rotation_y of a yaw in the LiDAR frame; exact for any tilt."""
    lidar_from_camera = calibration.lidar_from_camera
    ground = lidar_from_camera[np.ix_([0, 1], [0, 2])]
    along_x, along_z = np.linalg.solve(ground, [np.cos(yaw_rad), np.sin(yaw_rad)])
    return wrap_angle(math.atan2(-along_z, along_x))


def _camera_corners(
    location: tuple[float, float, float], size: tuple[float, float, float], rotation_y: float
) -> Matrix:
    """Return (8, 3) corners in the camera frame; the bits of the row select length, height and width."""
    length, width, height = size
    bits = np.arange(8)
    along = np.where(bits & 1, 0.5, -0.5) * length
    up = np.where(bits & 2, 1.0, 0.0) * height
    across = np.where(bits & 4, 0.5, -0.5) * width
    cos, sin = np.cos(rotation_y), np.sin(rotation_y)
    offsets = np.stack([cos * along + sin * across, -up, -sin * along + cos * across], axis=1)
    corners: Matrix = offsets + np.asarray(location)
    return corners


def _project_box(
    corners: Matrix, image_from_camera: Matrix, image_size: tuple[int, int]
) -> tuple[tuple[float, float, float, float], float]:
    """Return the clipped bounding rectangle in the image, and the fraction of its area outside."""
    visible = _in_front(corners)
    if not len(visible):
        return BEHIND_CAMERA_BOX, 1.0
    pixels = visible @ image_from_camera[:, :3].T + image_from_camera[:, 3]
    pixels = pixels[:, :2] / np.maximum(pixels[:, 2:], 1e-6)
    low, high = pixels.min(axis=0), pixels.max(axis=0)
    limit = np.asarray(image_size, np.float64) - 1
    clipped_low, clipped_high = np.clip(low, 0, limit), np.clip(high, 0, limit)
    area, inside = np.prod(high - low), np.prod(clipped_high - clipped_low)
    outside = 1.0 if inside <= 0 else 1.0 - float(inside / area)
    box_2d = tuple(float(value) for value in (*clipped_low, *clipped_high))
    return (box_2d[0], box_2d[1], box_2d[2], box_2d[3]), float(np.clip(outside, 0.0, 1.0))


def _in_front(corners: Matrix) -> Matrix:
    """Return the corners beyond the near plane, and where edges cross it."""
    depth = corners[:, 2] - _NEAR_PLANE_M
    first, second = np.array(
        [(corner, corner | bit) for corner in range(8) for bit in (1, 2, 4) if not corner & bit]
    ).T
    crossing = (depth[first] > 0) != (depth[second] > 0)
    first, second = first[crossing], second[crossing]
    share = (depth[first] / (depth[first] - depth[second]))[:, None]
    return np.concatenate([corners[depth > 0], corners[first] + share * (corners[second] - corners[first])])


def in_image(
    points: npt.ArrayLike,
    calibration: CameraCalibration,
    image_size: tuple[int, int] = DEFAULT_IMAGE_SIZE,
) -> npt.NDArray[np.bool_]:
    """Return which points the camera sees.

    Args:
        points: (N, 3 or more), x, y, z first, metres in the LiDAR frame.
        calibration: calibration of the frame.
        image_size: width and height in pixels.

    Returns:
        (N,) bool: in front of the camera and inside the image. False for NaN and infinite points.

    Raises:
        ValueError: ``points`` has not at least three columns.
    """
    rows = np.asarray(points)
    if rows.ndim != 2 or rows.shape[1] < 3:
        raise ValueError(f"points must have shape (N, 3) or more columns, got {rows.shape}")
    xyz = rows[:, :3].astype(np.float64)
    finite = np.asarray(np.isfinite(xyz).all(axis=1))
    xyz = np.where(finite[:, None], xyz, 0.0)
    projection = calibration.image_from_camera @ calibration.camera_from_lidar
    u, v, depth = (xyz @ projection[:, :3].T + projection[:, 3]).T
    width, height = image_size
    # u and v are not yet divided by depth, which is positive for visible points.
    inside = (u >= 0) & (u < width * depth) & (v >= 0) & (v < height * depth)
    visible: npt.NDArray[np.bool_] = finite & (depth > 0) & inside
    return visible
