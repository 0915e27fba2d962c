"""Views of a sensor, and what it should have seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Views:
    """Views of a sensor, one row for each of ``V``.

    Attributes:
        position: (V, 3) float64 sensor position in metres in the map frame.
        yaw: (V,) float64 radians, centre of the field of view, counter-clockwise from +x.
        time_ns: (V,) int64.
        range_m: (V,) float64 maximum detection distance; a single number is also accepted here and below.
        field_of_view_rad: (V,) float64 horizontal angle, up to 2 pi.
        near_m: (V,) float64 minimum detection distance.
        elevation_rad: minimum and maximum angle above the horizontal.
        free_m: (V, bins) float64 free distance by bearing, in equal bins from the right edge of the field
            of view to the left; infinite if nothing was hit. Without it, occlusion is ignored.

    Raises:
        ValueError: shapes do not match, or a number is out of range.
    """

    position: NDArray[np.float64]
    yaw: NDArray[np.float64]
    time_ns: NDArray[np.int64]
    range_m: ArrayLike = 50.0
    field_of_view_rad: ArrayLike = 2.0 * math.pi
    near_m: ArrayLike = 0.0
    elevation_rad: tuple[float, float] = (-math.pi / 2, math.pi / 2)
    free_m: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        position = np.asarray(self.position, dtype=np.float64)
        if position.ndim != 2 or position.shape[1] != 3:
            raise ValueError(f"position must have shape (V, 3), got {position.shape}")
        if not np.isfinite(position).all():
            raise ValueError("position must be finite")
        object.__setattr__(self, "position", position)
        count = len(position)
        time = np.asarray(self.time_ns)
        if time.shape != (count,) or (count and time.dtype.kind not in "iu"):
            raise ValueError(f"time_ns must be {count} integers, got {time.dtype} of shape {time.shape}")
        object.__setattr__(self, "time_ns", time.astype(np.int64))
        for name, low, high in (
            ("yaw", -math.inf, math.inf),
            ("range_m", 0.0, math.inf),
            ("field_of_view_rad", 0.0, 2.0 * math.pi + 1e-9),
            ("near_m", 0.0, math.inf),
        ):
            given = np.asarray(getattr(self, name), dtype=np.float64)
            if given.shape not in ((), (count,)):
                raise ValueError(f"{name} must have shape ({count},), got {given.shape}")
            values = np.broadcast_to(given, (count,))
            if not (np.isfinite(values) & (values >= low) & (values <= high)).all():
                raise ValueError(f"{name} must be finite and from {low:g} to {high:g}")
            object.__setattr__(self, name, values)
        if self.free_m is not None:
            free = np.asarray(self.free_m, dtype=np.float64)
            if free.ndim != 2 or len(free) != count or free.shape[1] == 0:
                raise ValueError(f"free_m must have shape ({count}, bins), got {free.shape}")
            if np.isnan(free).any():
                raise ValueError("free_m must not be NaN. Use inf if nothing was hit, 0 if unknown")
            object.__setattr__(self, "free_m", free)

    def __len__(self) -> int:
        return len(self.position)

    def select(self, rows: NDArray[np.int64]) -> Views:
        """Return some of the views."""
        return replace(
            self,
            position=self.position[rows],
            yaw=self.yaw[rows],
            time_ns=self.time_ns[rows],
            range_m=np.asarray(self.range_m)[rows],
            field_of_view_rad=np.asarray(self.field_of_view_rad)[rows],
            near_m=np.asarray(self.near_m)[rows],
            free_m=None if self.free_m is None else self.free_m[rows],
        )


def expected_visible(
    views: Views, positions: ArrayLike, *, margin_m: float = 0.3, margin_rad: float = 0.02
) -> NDArray[np.bool_]:
    """Return which positions each view should have shown.

    Args:
        views: V views.
        positions: (N, 3) metres in the map frame of the views.
        margin_m: margin at the near and far end of the range. A position this close behind a hit counts
            as visible, because the surface of an object is in front of its centre.
        margin_rad: margin at the sides of the field of view.

    Returns:
        (V, N) bool.

    Raises:
        ValueError: positions of another shape.
    """
    points = np.asarray(positions, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"positions must have shape (N, 3), got {points.shape}")
    offset = points[None, :, :] - views.position[:, None, :]
    flat = np.hypot(offset[..., 0], offset[..., 1])
    distance = np.hypot(flat, offset[..., 2])
    bearing = np.arctan2(offset[..., 1], offset[..., 0]) - np.asarray(views.yaw)[:, None]
    bearing = np.remainder(bearing + math.pi, 2.0 * math.pi) - math.pi
    whole = np.asarray(views.field_of_view_rad)[:, None]
    # A full circle has no sides.
    inside = (np.abs(bearing) <= whole / 2.0 - margin_rad) | (whole >= 2.0 * math.pi - 1e-9)
    inside &= (distance <= np.asarray(views.range_m)[:, None] - margin_m) & (
        distance >= np.asarray(views.near_m)[:, None] + margin_m
    )
    elevation = np.arctan2(offset[..., 2], flat)
    inside &= (elevation >= views.elevation_rad[0]) & (elevation <= views.elevation_rad[1])
    if views.free_m is not None:
        bins = views.free_m.shape[1]
        share = (bearing + whole / 2.0) / np.maximum(whole, 1e-12)
        index = np.clip(np.floor(share * bins), 0, bins - 1).astype(np.int64)
        inside &= distance <= np.take_along_axis(views.free_m, index, axis=1) + margin_m
    return inside


def seen_through(
    views: Views, positions: ArrayLike, widths_m: ArrayLike, lengths_m: ArrayLike, *, margin_m: float = 0.3
) -> NDArray[np.bool_]:
    """Return which views looked through the place of an object.

    The view must be free to behind the far end of the object, across its narrow side.

    Args:
        views: V views, with ``free_m`` no farther than measured.
        positions: (N, 3) metres in the map frame of the views.
        widths_m, lengths_m: (N,) sizes of the objects.
        margin_m: additional free distance.

    Returns:
        (V, N) bool; all False without ``free_m``.

    Raises:
        ValueError: arrays of other shapes.
    """
    points, short, long = np.asarray(positions, np.float64), np.asarray(widths_m), np.asarray(lengths_m)
    if points.ndim != 2 or points.shape[1] != 3 or not short.shape == long.shape == (len(points),):
        raise ValueError(
            f"positions must have shape (N, 3) and widths_m and lengths_m (N,), got {points.shape},"
            f" {short.shape} and {long.shape}"
        )
    if views.free_m is None:
        return np.zeros((len(views), len(points)), dtype=np.bool_)
    offset = points[None, :, :2] - views.position[:, None, :2]
    distance = np.hypot(offset[..., 0], offset[..., 1])
    behind = distance + np.maximum(short, long) / 2.0 + margin_m
    through = (distance <= np.asarray(views.range_m)[:, None]) & (
        distance >= np.asarray(views.near_m)[:, None]
    )
    bearing = np.arctan2(offset[..., 1], offset[..., 0]) - np.asarray(views.yaw)[:, None]
    half = np.arctan2(np.minimum(short, long) / 2.0, np.maximum(distance, 1e-9))
    whole, bins = np.asarray(views.field_of_view_rad)[:, None], views.free_m.shape[1]
    # Use as many directions as bins across the widest object.
    widest = float(half[through].max(initial=0.0))
    count = 2 * math.ceil(widest / (float(whole.min(initial=2.0 * math.pi)) / bins)) + 1
    for part in np.linspace(-1.0, 1.0, count):
        turned = np.remainder(bearing + part * half + math.pi, 2.0 * math.pi) - math.pi
        share = (turned + whole / 2.0) / np.maximum(whole, 1e-12)
        through &= (share >= 0.0) & (share < 1.0)
        index = np.clip(np.floor(share * bins), 0, bins - 1).astype(np.int64)
        through &= np.take_along_axis(views.free_m, index, axis=1) >= behind
    return through
