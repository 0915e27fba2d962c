"""KITTI calibration files: how the LiDAR and the camera of a frame belong together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.text import parse_number, read_text, write_text

Matrix = npt.NDArray[np.float64]

#: Calibration key -> (attribute, accepted spellings, shape).
_CALIBRATION_KEYS = {
    "P2": ("image_from_camera", ("P2",), (3, 4)),
    "R0_rect": ("rectification", ("R0_rect", "R_rect"), (3, 3)),
    "Tr_velo_to_cam": ("camera_from_lidar_raw", ("Tr_velo_to_cam", "Tr_velo_cam"), (3, 4)),
}
_CALIBRATION_HINT = (
    "a calibration file a frame; for data without a camera write one with"
    " perception.io.kitti.write_calibration(path, KittiCalibration.default())"
)


@dataclass(frozen=True, eq=False)
class KittiCalibration:
    """How the LiDAR, the rectified camera and the left colour image belong together.

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
        for attribute, _, shape in _CALIBRATION_KEYS.values():
            matrix = np.asarray(getattr(self, attribute), np.float64)
            if matrix.shape != shape:
                raise ValueError(f"{attribute} must have shape {shape}, got {matrix.shape}")
            object.__setattr__(self, attribute, matrix)

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
    def default(cls) -> KittiCalibration:
        """A made-up calibration in round numbers for simulated or custom data.

        Focal length 720 px, principal point (620, 187) px; the camera looks along the LiDAR's x axis from
        0.27 m in front of it and 0.08 m below it.
        """
        return cls(
            image_from_camera=np.array([[720.0, 0, 620, 0], [0, 720, 187, 0], [0, 0, 1, 0]]),
            rectification=np.eye(3),
            camera_from_lidar_raw=np.array([[0.0, -1, 0, 0], [0, 0, -1, -0.08], [1, 0, 0, -0.27]]),
        )


def read_calibration(path: str | Path) -> KittiCalibration:
    """Read P2, R0_rect and Tr_velo_to_cam of a calibration file; other entries are skipped.

    Raises:
        DataError: the file is missing, lacks one of the keys, holds a bad number, or the transform from the
            LiDAR to the camera is no rigid motion.
    """
    path = Path(path)
    entries: dict[str, tuple[int, list[str]]] = {}
    text = read_text(path, _CALIBRATION_HINT)
    for number, line in enumerate(text.splitlines(), 1):
        key, *words = line.replace(":", " ", 1).split() or [""]
        entries[key] = (number, words)
    calibration = KittiCalibration(
        **{attribute: _matrix(path, entries, key) for key, (attribute, _, _) in _CALIBRATION_KEYS.items()}
    )
    rotation = calibration.camera_from_lidar[:3, :3]
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=0.01) or np.linalg.det(rotation) < 0:
        raise DataError(
            f"{path}: R0_rect times Tr_velo_to_cam is not a rotation and a shift;"
            " check the order of their numbers (row by row) and that both are given in metres"
        )
    return calibration


def write_calibration(path: str | Path, calibration: KittiCalibration) -> None:
    """Write a calibration file with all of KITTI's entries.

    P0 to P3 all hold P2, and Tr_imu_to_velo the identity: some programs find entries by line number.

    Raises:
        DataError: the file cannot be written.
    """
    rows = [(f"P{camera}", calibration.image_from_camera) for camera in range(4)]
    rows += [("R0_rect", calibration.rectification), ("Tr_velo_to_cam", calibration.camera_from_lidar_raw)]
    rows += [("Tr_imu_to_velo", np.eye(4)[:3])]
    lines = [f"{key}: " + " ".join(f"{value:.12e}" for value in matrix.ravel()) for key, matrix in rows]
    write_text(Path(path), "\n".join(lines) + "\n")


def _matrix(path: Path, entries: dict[str, tuple[int, list[str]]], key: str) -> Matrix:
    _, spellings, shape = _CALIBRATION_KEYS[key]
    found = next((entries[name] for name in spellings if name in entries), None)
    size = shape[0] * shape[1]
    if found is None:
        raise DataError(
            f"{path}: key {key} is missing; add the line '{key}:' with {size} numbers, row by row"
        )
    number, words = found
    place = f"{path}: line {number}"
    if len(words) != size:
        raise DataError(
            f"{place}: key {key} has {len(words)} numbers; expected {size} ({shape[0]}x{shape[1]})"
        )
    return np.array([parse_number(place, key, word) for word in words]).reshape(shape)
