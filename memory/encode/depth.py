"""Depth images as vectors, for finding places where there are no colours to go by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray


def depth_points(
    depth_m: ArrayLike, intrinsics: ArrayLike, *, step: int = 1, range_m: tuple[float, float] = (0.1, 10.0)
) -> NDArray[np.float32]:
    """Points of a depth image.

    Args:
        depth_m: (H, W) metres along the optical axis; 0, NaN and what is out of range are no readings.
        intrinsics: (3, 3) of the pinhole camera, pixels.
        step: every ``step``-th row and column.
        range_m: nearest and farthest depth.

    Returns:
        (N, 3) float32 in the robot's axes at the camera: x forward, y left, z up.

    Raises:
        ValueError: shapes or ranges do not fit.
    """
    depth, camera = _checked(depth_m, intrinsics)
    if step < 1 or not 0 <= range_m[0] < range_m[1]:
        raise ValueError(f"step must be at least 1 and range_m rise, got {step} and {range_m}")
    depth = depth[::step, ::step]
    row, column = np.nonzero((depth >= range_m[0]) & (depth <= range_m[1]))
    forward = depth[row, column]
    right = (column * step - camera[0, 2]) / camera[0, 0] * forward
    down = (row * step - camera[1, 2]) / camera[1, 1] * forward
    return np.stack([forward, -right, -down], axis=1).astype(np.float32)


@dataclass(frozen=True)
class DepthEncoder:
    """Vectors of depth images, similar where the shape of what is seen is.

    The points, turned so that gravity points down where ``up`` is given, are sorted into directions: columns
    of azimuth and rows of elevation around the optical axis, each with the logarithm of its mean inverse
    range. A second part weighs points by height and horizontal range, like the rings of Scan Context (Kim &
    Kim 2018), and hardly changes as the camera pans. Both are centred, so that what all views have in common
    does not make everything alike.

    Attributes:
        columns, rows: cells over the field of view.
        field_deg: width and height of the field that the cells cover; what is outside is not used.
        heights, rings: cells of height (from 2 m below the camera to 2 m above) and horizontal range.
        range_m: nearest and farthest reading that counts.
        layout_weight: share of the counts by height and range in a vector, from 0 to 1.

    Raises:
        ValueError: a size or a share is out of range.
    """

    columns: int = 16
    rows: int = 12
    field_deg: tuple[float, float] = (64.0, 52.0)
    heights: int = 8
    rings: int = 8
    range_m: tuple[float, float] = (0.1, 10.0)
    layout_weight: float = 0.3

    def __post_init__(self) -> None:
        if min(self.columns, self.rows, self.heights, self.rings) < 1:
            raise ValueError("columns, rows, heights and rings must be at least 1")
        if not (0 < self.field_deg[0] < 360 and 0 < self.field_deg[1] < 180):
            raise ValueError(f"field_deg must be within (360, 180), got {self.field_deg}")
        if not 0 < self.range_m[0] < self.range_m[1]:
            raise ValueError(f"range_m must rise from above zero, got {self.range_m}")
        if not 0 <= self.layout_weight <= 1:
            raise ValueError(f"layout_weight must be from 0 to 1, got {self.layout_weight}")

    @cached_property
    def dim(self) -> int:
        """Length of the vectors."""
        return self.columns * self.rows + self.heights * self.rings

    def encode(
        self, depth_m: ArrayLike, intrinsics: ArrayLike, *, up: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Vector of a depth image.

        Args:
            depth_m, intrinsics: see :func:`depth_points`.
            up: (3,) direction against gravity in the camera's axes (x right, y down, z forward), such as an
                accelerometer gives; (0, -1, 0), a level camera, by default.

        Returns:
            (dim,) float32 unit vector.

        Raises:
            ValueError: shapes do not fit, ``up`` has no length, or there is no reading in range.
        """
        height, _ = np.shape(depth_m) if np.ndim(depth_m) == 2 else (0, 0)
        points = depth_points(depth_m, intrinsics, step=max(1, height // 120), range_m=self.range_m)
        if not len(points):
            raise ValueError(f"the depth image has no reading from {self.range_m[0]} to {self.range_m[1]} m")
        turned = points.astype(np.float64) @ _level(up).T
        view, layout = self._view(turned), self._layout(turned)
        parts = [np.sqrt(1 - self.layout_weight) * view, np.sqrt(self.layout_weight) * layout]
        vector = np.concatenate(parts)
        length = float(np.linalg.norm(vector))
        if length < 1e-9:
            # Everything equally far in every cell: nothing to tell it by but that.
            return np.full(self.dim, self.dim**-0.5, np.float32)
        return np.asarray(vector / length, np.float32)

    def _view(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log inverse range by direction, centred, of length 1 (or 0); cells without readings are average."""
        level = np.hypot(points[:, 0], points[:, 1])
        angles = np.degrees(
            np.stack([np.arctan2(points[:, 1], points[:, 0]), np.arctan2(points[:, 2], level)])
        )
        cells = np.array([[self.columns], [self.rows]])
        place = np.floor((angles / np.array(self.field_deg)[:, None] + 0.5) * cells).astype(np.int64)
        inside = ((place >= 0) & (place < cells)).all(axis=0)
        cell = place[1, inside] * self.columns + place[0, inside]
        count = np.bincount(cell, minlength=self.columns * self.rows)
        total = np.bincount(cell, 1 / np.linalg.norm(points[inside], axis=1), self.columns * self.rows)
        seen = count > 0
        mean = total[seen] / count[seen]
        view = np.zeros(len(count))
        if len(mean):
            view[seen] = np.log(mean) - np.log(mean).mean()
        return _unit(view)

    def _layout(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points by height and horizontal range, as square roots of shares, centred, of length 1 (or 0)."""
        bounds = ((-2.0, 2.0), (0.0, self.range_m[1]))
        level = np.hypot(points[:, 0], points[:, 1])
        # A square of pixels covers more of a surface the farther it is.
        weight = (points**2).sum(axis=1)
        sizes = (self.heights, self.rings)
        counts, _, _ = np.histogram2d(points[:, 2], level, bins=sizes, range=bounds, weights=weight)
        shares = np.sqrt(counts.ravel() / max(float(counts.sum()), 1e-9))
        return _unit(shares - shares.mean())


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values / max(float(np.linalg.norm(values)), 1e-9)


def _level(up: ArrayLike | None) -> NDArray[np.float64]:
    """(3, 3) rotation of the camera's axes (forward, left, up) that puts z along ``up``, heading kept."""
    if up is None:
        return np.eye(3)
    right, down, forward = np.asarray(up, np.float64).reshape(-1).tolist() if np.size(up) == 3 else (0, 0, 0)
    z = np.array([forward, -right, -down])
    if not np.isfinite(z).all() or np.linalg.norm(z) < 1e-9:
        raise ValueError(f"up must be three finite numbers, not all zero, got {up!r}")
    z /= np.linalg.norm(z)
    # Looking straight up or down, the top of the image takes the place of the heading.
    ahead = np.array([1.0, 0.0, 0.0]) if abs(z[0]) < 0.999 else np.array([0.0, 0.0, -np.sign(z[0])])
    x = ahead - (ahead @ z) * z
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z])


def _checked(depth_m: ArrayLike, intrinsics: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    depth, camera = np.asarray(depth_m, np.float64), np.asarray(intrinsics, np.float64)
    if depth.ndim != 2:
        raise ValueError(f"depth_m must have shape (H, W), got {depth.shape}")
    if camera.shape != (3, 3) or not np.isfinite(camera).all() or min(camera[0, 0], camera[1, 1]) <= 0:
        raise ValueError("intrinsics must be a (3, 3) matrix with positive focal lengths")
    return depth, camera
