"""Section ``pillars`` of the configuration: range and grid of a detector."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass

from perception.config.checks import check, finite_pair
from perception.errors import ConfigError
from perception.geometry import BirdsEyeGrid, OpenGrid

#: Default heights of a detector without a range.
_Z_RANGE_M = (-3.0, 1.0)
#: Area of the default range (KITTI's camera view), for which limits per frame are configured.
_REFERENCE_AREA_M2 = 69.12 * 79.36
#: Largest scaling of limits with the area, because GPU buffers grow with them.
_MOST_GROWTH = 16.0


@dataclass(frozen=True)
class PillarConfig:
    """Pillars: vertical columns that hold at least one point.

    Attributes:
        range_m: x, y, z minimum, then x, y, z maximum (exclusive); points outside are ignored. None (``null``
            in YAML): unbounded in x and y; the cost of a frame then grows with its occupied pillars.
        z_range_m: lowest and highest z of an unbounded range; None: as in the default range.
        origin_m: x and y of a pillar corner of an unbounded range; None: 0, 0.
        shrink: factor by which the network sees the scene smaller, so that it sees ships in the size of cars.
            Detectors divide coordinates by it and multiply boxes by it. All lengths of the configuration
            hold in the shrunk scene.
        cube_m: keep one point per cube of this edge, so that near and far objects look alike and large scenes
            stay fast; 0 keeps all points.
        pillar_size_m: edge of a pillar in x and y.
        channels: width of a pillar's feature vector.
        max_pillars: capacity per frame of the default range; larger ranges have more (:attr:`most_pillars`).
            Beyond it the detector keeps the nearest pillars and warns.
        sweeps: scans that the detector reads together: the current one and up to ``sweeps - 1`` past scans of
            the drive, moved by their poses. Above 1, the age of a point in seconds is one more feature.
        max_age_s: past scans older than this are not used.
    """

    range_m: tuple[float, float, float, float, float, float] | None = (0.0, -39.68, -3.0, 69.12, 39.68, 1.0)
    pillar_size_m: float = 0.16
    channels: int = 64
    max_pillars: int = 60_000
    z_range_m: tuple[float, float] | None = None
    origin_m: tuple[float, float] | None = None
    shrink: float = 1.0
    cube_m: float = 0.0
    sweeps: int = 1
    max_age_s: float = 0.6

    def __post_init__(self) -> None:
        check(self.pillar_size_m > 0, "pillars.pillar_size_m", "positive", self.pillar_size_m)
        check(0 < self.shrink < math.inf, "pillars.shrink", "positive", self.shrink)
        check(0 <= self.cube_m < math.inf, "pillars.cube_m", "not negative", self.cube_m)
        if self.range_m is None:
            self._check_open()
        else:
            check(len(self.range_m) == 6, "pillars.range_m", "six numbers or null", self.range_m)
            low, high = self.range_m[:3], self.range_m[3:]
            check(
                all(-math.inf < a < b < math.inf for a, b in zip(low, high, strict=True)),
                "pillars.range_m",
                "minimum x, y, z below maximum x, y, z",
                self.range_m,
            )
            for name in ("z_range_m", "origin_m"):
                value = getattr(self, name)
                check(value is None, f"pillars.{name}", "null where range_m is given, which has it", value)
        check(
            self.channels > 0 and self.channels % 2 == 0,
            "pillars.channels",
            "positive and even",
            self.channels,
        )
        check(self.max_pillars > 0, "pillars.max_pillars", "positive", self.max_pillars)
        check(self.sweeps > 0, "pillars.sweeps", "positive", self.sweeps)
        check(0 < self.max_age_s < math.inf, "pillars.max_age_s", "positive", self.max_age_s)

    def _check_open(self) -> None:
        low_m, high_m = finite_pair("pillars.z_range_m", self.z_range_m or _Z_RANGE_M)
        check(low_m < high_m, "pillars.z_range_m", "the lowest z, then a higher one", self.z_range_m)
        finite_pair("pillars.origin_m", self.origin_m or (0.0, 0.0))

    @property
    def columns(self) -> int:
        """Columns of a point: x, y, z, intensity; with several sweeps also the age."""
        return 4 if self.sweeps == 1 else 5

    @property
    def open(self) -> bool:
        """True if the range is unbounded in x and y."""
        return self.range_m is None

    @property
    def heights_m(self) -> tuple[float, float]:
        """Lowest and highest z (exclusive)."""
        if self.range_m is None:
            return self.z_range_m or _Z_RANGE_M
        return self.range_m[2], self.range_m[5]

    @property
    def growth(self) -> float:
        """Factor of the limits per frame, from 1 to 16: area relative to the default range, or 16."""
        if self.range_m is None:
            return _MOST_GROWTH
        x_low, y_low, _, x_high, y_high, _ = self.range_m
        area_m2 = (x_high - x_low) * (y_high - y_low)
        return min(max(1.0, area_m2 / _REFERENCE_AREA_M2), _MOST_GROWTH)

    @property
    def most_pillars(self) -> int:
        """Capacity per frame: ``max_pillars``, scaled with the area of the range (:attr:`growth`)."""
        return math.ceil(self.max_pillars * self.growth)

    @property
    def grid(self) -> BirdsEyeGrid | OpenGrid:
        """Grid of the pillars."""
        if self.range_m is None:
            return OpenGrid(self.origin_m or (0.0, 0.0), self.heights_m, self.pillar_size_m)
        return BirdsEyeGrid(self.range_m, self.pillar_size_m)

    @property
    def closed_grid(self) -> BirdsEyeGrid:
        """Grid of a bounded range.

        Raises:
            ConfigError: the range is unbounded.
        """
        grid = self.grid
        if isinstance(grid, OpenGrid):
            raise ConfigError(
                "pillars.range_m is null, but this needs a bounded grid. Set pillars.range_m to six numbers."
            )
        return grid

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Rows (y) and columns (x) of the bird's-eye grid.

        Raises:
            ConfigError: the range is unbounded.
        """
        return self.closed_grid.shape

    def with_range(self, range_m: Sequence[float] | None) -> PillarConfig:
        """Return the same pillars in another range.

        Args:
            range_m: six numbers in metres of the scans; None: unbounded in x and y, with the same heights and
                pillar corners.
        """
        if range_m is not None:
            shrunk = tuple(float(edge) / self.shrink for edge in range_m)
            given = typing.cast(tuple[float, float, float, float, float, float], shrunk)
            return dataclasses.replace(self, range_m=given, z_range_m=None, origin_m=None)
        heights, origin = self.heights_m, self.grid.origin_m
        return dataclasses.replace(self, range_m=None, z_range_m=heights, origin_m=origin)
