"""Labelled objects in a camera's image, and the calibration of camera and LiDAR.

KITTI's labels and evaluation use them (docs/decisions/0003-kitti-evaluation.md). Objects have height, width,
length, bottom centre in the rectified camera frame (x right, y down, z forward), and ``rotation_y`` about the
camera's y axis. :mod:`perception.data.projection` converts them to boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

#: Type of image regions whose objects were not labelled; never a box.
DONT_CARE = "DontCare"
#: Width and height in pixels of most KITTI images.
DEFAULT_IMAGE_SIZE = (1242, 375)


@dataclass(frozen=True)
class CameraObject:
    """One labelled or detected object, or a region of the image that was not labelled.

    Attributes:
        type: class name, or ``"DontCare"``.
        truncated: part of the object outside the image, 0 to 1; -1 where unknown.
        occluded: 0 visible, 1 partly, 2 largely occluded, 3 unknown; -1 where not given.
        alpha: observation angle in radians: ``rotation_y`` less the bearing of the object.
        box_2d: left, top, right, bottom in pixels.
        height_m: size along the camera's y axis.
        width_m: size across the heading.
        length_m: size along the heading.
        location: x, y, z in metres of the bottom centre in the rectified camera frame.
        rotation_y: heading in radians about the camera's y axis; 0 is the camera's x axis.
        score: confidence of a detection, None for a label.
    """

    type: str
    truncated: float
    occluded: int
    alpha: float
    box_2d: tuple[float, float, float, float]
    height_m: float
    width_m: float
    length_m: float
    location: tuple[float, float, float]
    rotation_y: float
    score: float | None = None


@dataclass(frozen=True, eq=False)
class CameraCalibration:
    """Transforms between LiDAR, rectified camera and image.

    Attributes:
        image_from_camera: (3, 4) float64, P2: rectified camera frame (metres) to homogeneous pixels.
        rectification: (3, 3) float64, R0_rect: rotation from the raw to the rectified camera frame.
        camera_from_lidar_raw: (3, 4) float64, Tr_velo_to_cam: LiDAR to raw camera frame, metres.

    Raises:
        ValueError: a matrix has another shape.
    """

    image_from_camera: Matrix
    rectification: Matrix
    camera_from_lidar_raw: Matrix

    def __post_init__(self) -> None:
        for name, values in tuple(vars(self).items()):
            matrix, shape = np.asarray(values, np.float64), (3, 3 if name == "rectification" else 4)
            if matrix.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {matrix.shape}")
            object.__setattr__(self, name, matrix)

    @property
    def camera_from_lidar(self) -> Matrix:
        """(4, 4) float64: R0_rect @ Tr_velo_to_cam, LiDAR to rectified camera frame."""
        transform = np.eye(4)
        transform[:3] = self.rectification @ self.camera_from_lidar_raw
        return transform

    @property
    def lidar_from_camera(self) -> Matrix:
        """(4, 4) float64: inverse of ``camera_from_lidar``."""
        return np.linalg.inv(self.camera_from_lidar).astype(np.float64)

    @classmethod
    def default(cls) -> CameraCalibration:
        """Return a synthetic calibration, for simulated or custom data.

        Focal length 720 px, principal point (620, 187) px; the camera looks along the LiDAR's x axis from
        0.27 m in front of it and 0.08 m below it.
        """
        return cls(
            image_from_camera=np.array([[720.0, 0, 620, 0], [0, 720, 187, 0], [0, 0, 1, 0]]),
            rectification=np.eye(3),
            camera_from_lidar_raw=np.array([[0.0, -1, 0, 0], [0, 0, -1, -0.08], [1, 0, 0, -0.27]]),
        )
