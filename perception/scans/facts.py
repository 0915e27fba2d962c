"""Measurements of one scan, for the checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.io.raw import RawCloud, intensity_divisor

#: Number of height layers; the fullest one is the ground.
_LAYERS = 60
#: Points this close to the sensor's axis may belong to its own vehicle.
_OWN_VEHICLE_M = 3.0
_SAMPLE_ROWS = 1024
_SAMPLE_PLACES = np.arange(_SAMPLE_ROWS) * ((math.sqrt(5) - 1) / 2) % 1.0


@dataclass(frozen=True, eq=False)
class ScanFacts:
    """Measurements of one scan. Lengths are in the unit of the file, percentiles over finite points.

    Attributes:
        frame_id: name of the frame.
        points: rows in the file.
        not_finite: rows with a NaN or infinite coordinate.
        at_origin: rows exactly at (0, 0, 0).
        repeated: rows whose x, y, z occurred before, without those at the origin.
        low, median, high: (3,) 2nd, 50th and 98th percentile of x, y, z.
        smallest, largest: (3,) extremes.
        range_99: 99th percentile of the horizontal distance.
        layer: height z of the fullest horizontal layer, without points on the own vehicle.
        bearing_rad: mean direction of the points seen from above.
        concentration: 0 for points all around, 1 for points all in one direction.
        intensity: smallest, median and largest finite intensity as stored, or None.
        divisor: number that scales intensity to [0, 1]; None for an unknown range.
        sample: some rows, to measure again after a transform.
    """

    frame_id: str
    points: int
    not_finite: int
    at_origin: int
    repeated: int
    low: npt.NDArray[np.float64]
    median: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    smallest: npt.NDArray[np.float64]
    largest: npt.NDArray[np.float64]
    range_99: float
    layer: float
    bearing_rad: float
    concentration: float
    intensity: tuple[float, float, float] | None
    divisor: float | None
    sample: RawCloud

    @property
    def finite(self) -> int:
        """Rows whose coordinates are all finite."""
        return self.points - self.not_finite


def finite_xyz(raw: RawCloud) -> npt.NDArray[np.float64]:
    """Return (N, 3) float64 finite coordinates."""
    # Filtered before the conversion, which warns about signalling NaN.
    return raw.xyz[np.isfinite(raw.xyz).all(axis=1)].astype(np.float64)


def sample_places(rows: int) -> npt.NDArray[np.intp] | None:
    """Return about a thousand row numbers, spread over a scan; None means all rows.

    Scans are stored ring by ring, so rows at a fixed distance may all belong to one ring. Multiples of the
    golden ratio are evenly spread without a period.
    """
    return (_SAMPLE_PLACES * rows).astype(np.intp) if rows > _SAMPLE_ROWS else None


def measure_scan(frame_id: str, raw: RawCloud, *, count_repeated: bool = True) -> ScanFacts:
    """Measure one scan; all values of an empty scan are zero.

    Args:
        frame_id: name of the frame.
        raw: the scan.
        count_repeated: True also counts repeated points, which takes longer than the rest.
    """
    xyz = finite_xyz(raw)
    places = sample_places(len(raw.xyz))
    rows = slice(None) if places is None else places
    at_origin = int((xyz == 0).all(axis=1).sum())
    percentiles = np.percentile(xyz, (0, 2, 50, 98, 100), axis=0) if len(xyz) else np.zeros((5, 3))
    bearing = np.arctan2(xyz[:, 1], xyz[:, 0])
    mean_x, mean_y = (np.cos(bearing).mean(), np.sin(bearing).mean()) if len(xyz) else (0.0, 0.0)
    return ScanFacts(
        frame_id=frame_id,
        points=len(raw.xyz),
        not_finite=len(raw.xyz) - len(xyz),
        at_origin=at_origin,
        repeated=_repeated(raw.xyz[np.isfinite(raw.xyz).all(axis=1)], at_origin) if count_repeated else 0,
        low=percentiles[1],
        median=percentiles[2],
        high=percentiles[3],
        smallest=percentiles[0],
        largest=percentiles[4],
        range_99=float(np.percentile(np.hypot(xyz[:, 0], xyz[:, 1]), 99)) if len(xyz) else 0.0,
        layer=_fullest_layer(_around(xyz)[:, 2]),
        bearing_rad=float(np.arctan2(mean_y, mean_x)),
        concentration=float(np.hypot(mean_x, mean_y)),
        intensity=_intensity_range(raw.intensity),
        divisor=intensity_divisor(raw.intensity),
        sample=RawCloud(raw.xyz[rows], None if raw.intensity is None else raw.intensity[rows]),
    )


def _repeated(xyz: npt.NDArray[np.float32], at_origin: int) -> int:
    # Compare 64-bit hashes of rows; collisions are negligible.
    bits = np.ascontiguousarray(xyz + np.float32(0)).view(np.uint32).astype(np.uint64)
    mixed = bits @ np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
    return len(mixed) - len(np.unique(mixed)) - max(at_origin - 1, 0)


def _around(xyz: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the points off the own vehicle, whose roof would look like ground (nuScenes)."""
    around = xyz[np.hypot(xyz[:, 0], xyz[:, 1]) > _OWN_VEHICLE_M]
    return around if len(around) > 0.1 * len(xyz) else xyz


def _fullest_layer(heights: npt.NDArray[np.float64]) -> float:
    if not len(heights):
        return 0.0
    low, high = np.percentile(heights, (1, 99))
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        # Too flat for a histogram.
        return float(low)
    counts, edges = np.histogram(heights, bins=_LAYERS, range=(float(low), float(high)))
    fullest = int(counts.argmax())
    return float(edges[fullest] + edges[fullest + 1]) / 2


def _intensity_range(intensity: npt.NDArray[Any] | None) -> tuple[float, float, float] | None:
    if intensity is None:
        return None
    finite = intensity[np.isfinite(intensity)].astype(np.float64)
    return (float(finite.min()), float(np.median(finite)), float(finite.max())) if len(finite) else None
