"""Rigid motions as (4, 4) matrices: poses of sensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

#: A sensor that moved farther than slack plus fastest speed times time has jumped.
_SLACK_M, _FASTEST_M_S = 5.0, 100.0


def checked_pose(pose: Any) -> Matrix:
    """Return a pose as (4, 4) float64.

    Raises:
        ValueError: the pose is not a rigid motion.
    """
    matrix = np.array(pose, np.float64)
    if matrix.shape != (4, 4):
        raise ValueError(f"pose must have shape (4, 4), map_from_lidar; got {matrix.shape}")
    turn = matrix[:3, :3]
    rigid = bool(np.isfinite(matrix).all()) and np.abs(turn @ turn.T - np.eye(3)).max() <= 1e-2
    if not rigid or np.linalg.det(turn) <= 0 or np.abs(matrix[3] - (0, 0, 0, 1)).max() > 1e-6:
        raise ValueError(
            "pose must be map_from_lidar, a rotation and a shift in metres above a row 0 0 0 1;"
            f" got {matrix.tolist()}"
        )
    return matrix


def inverse(pose: Matrix) -> Matrix:
    """Return the inverse of a rigid motion."""
    found = np.eye(4)
    found[:3, :3] = pose[:3, :3].T
    found[:3, 3] = -(pose[:3, :3].T @ pose[:3, 3])
    return found


def jumps(before: Matrix, after: Matrix, seconds: float) -> bool:
    """Return True if no sensor moves from one pose to the other in this time."""
    way = after[:3, 3] - before[:3, 3]
    return float(way @ way) > (_SLACK_M + _FASTEST_M_S * seconds) ** 2


def moved_points(points: npt.NDArray[np.float32], change: Matrix) -> npt.NDArray[np.float32]:
    """Return (N, 4) points in another frame; the intensity stays."""
    found = points.copy()
    with np.errstate(invalid="ignore", over="ignore"):
        found[:, :3] = points[:, :3].astype(np.float64) @ change[:3, :3].T + change[:3, 3]
    return found
