"""What a sensor should have seen from where it was."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Views:
    """Looks of a sensor at the world, a row for each of ``V``.

    Attributes:
        position: (V, 3) float64, of the sensor in metres in the map frame.
        yaw: (V,) float64, radians, the middle of its field of view counter-clockwise from +x.
        time_ns: (V,) int64.
        range_m: (V,) float64, how far it detects; one number for all is allowed here and below.
        field_of_view_rad: (V,) float64, whole horizontal angle, up to 2 pi.
        near_m: (V,) float64, closer than this it sees nothing.
        elevation_rad: least and largest angle above the horizontal.
        free_m: (V, bins) float64 or ``None``: how far the view was free, by bearing in equal bins from the
            right edge of the field of view to the left; infinite where nothing was hit. Without it whatever
            hides a thing goes unnoticed.

    Raises:
        ValueError: shapes do not fit, or numbers are out of range.
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
                raise ValueError("free_m must not be NaN: use inf where nothing was hit, 0 where unknown")
            object.__setattr__(self, "free_m", free)

    def __len__(self) -> int:
        return len(self.position)

    def select(self, rows: NDArray[np.int64]) -> Views:
        """Some of the looks."""
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
    """Which positions each view should have shown.

    Args:
        views: V of them.
        positions: (N, 3) metres in the map frame of the views.
        margin_m: what is closer than this to the near or far end counts as out of view. In front of what
            was hit it counts as in view: a thing stops the view at its own surface, this much before its
            centre.
        margin_rad: the same at the sides of the field of view.

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
    """Which views looked through the place of a thing: had it been there, it would have stopped them.

    All around its middle, as wide as its narrow side, the view must be free to behind its far end.

    Args:
        views: V of them, with ``free_m`` no further than is known.
        positions: (N, 3) metres in the map frame of the views.
        widths_m, lengths_m: (N,) of the things, whichever way they are turned.
        margin_m: so much further it must be free.

    Returns:
        (V, N) bool; without ``free_m`` nothing is known to be free.

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
    # As many directions as there are bins across the widest thing in view.
    widest = float(half[through].max(initial=0.0))
    count = 2 * math.ceil(widest / (float(whole.min(initial=2.0 * math.pi)) / bins)) + 1
    for part in np.linspace(-1.0, 1.0, count):
        turned = np.remainder(bearing + part * half + math.pi, 2.0 * math.pi) - math.pi
        share = (turned + whole / 2.0) / np.maximum(whole, 1e-12)
        through &= (share >= 0.0) & (share < 1.0)
        index = np.clip(np.floor(share * bins), 0, bins - 1).astype(np.int64)
        through &= np.take_along_axis(views.free_m, index, axis=1) >= behind
    return through
