"""Depth images as vectors, for place recognition without colours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray


def depth_points(
    depth_m: ArrayLike, intrinsics: ArrayLike, *, step: int = 1, range_m: tuple[float, float] = (0.1, 10.0)
) -> NDArray[np.float32]:
    """Return the points of a depth image.

    Args:
        depth_m: (H, W) metres along the optical axis; 0, NaN and values out of range are ignored.
        intrinsics: (3, 3) of the pinhole camera, in pixels.
        step: use each ``step``-th row and column.
        range_m: minimum and maximum depth.

    Returns:
        (N, 3) float32 in the robot's axes at the camera: x forward, y left, z up.

    Raises:
        ValueError: shapes or ranges do not match.
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
    """Encoder of depth images; vectors are similar for similar shapes.

    The points are rotated so that z points up if ``up`` is given. The first part of the vector is the log of
    the mean inverse range in each cell of azimuth and elevation around the optical axis. The second part
    counts points by height and horizontal range, like the rings of Scan Context (Kim & Kim 2018), and hardly
    changes when the camera pans. Both are centred, so that what all views share does not count.

    Attributes:
        columns, rows: number of cells over the field of view.
        field_deg: width and height of the field of view of the cells; points outside are ignored.
        heights, rings: number of cells of height (2 m below to 2 m above the camera) and of horizontal
            range.
        range_m: minimum and maximum range.
        layout_weight: share of the second part in the vector, from 0 to 1.

    Raises:
        ValueError: a size or share is out of range.
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
        """Vector length."""
        return self.columns * self.rows + self.heights * self.rings

    def encode(
        self, depth_m: ArrayLike, intrinsics: ArrayLike, *, up: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Encode a depth image.

        Args:
            depth_m, intrinsics: see :func:`depth_points`.
            up: (3,) direction against gravity in the camera's axes (x right, y down, z forward), for
                example from an accelerometer. The default (0, -1, 0) is a level camera.

        Returns:
            (dim,) float32 unit vector.

        Raises:
            ValueError: shapes do not match, ``up`` is zero, or no reading is in range.
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
            # All cells are equal, so there is no structure to encode.
            return np.full(self.dim, self.dim**-0.5, np.float32)
        return np.asarray(vector / length, np.float32)

    def _view(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the centred log inverse range by direction, length 1 or 0; cells without readings are
        average.
        """
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
        """Return square roots of the shares of points by height and range, centred, length 1 or 0."""
        bounds = ((-2.0, 2.0), (0.0, self.range_m[1]))
        level = np.hypot(points[:, 0], points[:, 1])
        # A pixel covers more surface at a larger distance.
        weight = (points**2).sum(axis=1)
        sizes = (self.heights, self.rings)
        counts, _, _ = np.histogram2d(points[:, 2], level, bins=sizes, range=bounds, weights=weight)
        shares = np.sqrt(counts.ravel() / max(float(counts.sum()), 1e-9))
        return _unit(shares - shares.mean())


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values / max(float(np.linalg.norm(values)), 1e-9)


def _level(up: ArrayLike | None) -> NDArray[np.float64]:
    """Return the (3, 3) rotation of the camera's axes that puts z along ``up`` and keeps the heading."""
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
