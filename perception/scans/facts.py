"""Measurements of one scan, for the checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.io.raw import RawCloud, finite_numbers, intensity_divisor

#: Number of height layers; the fullest one is the ground.
_LAYERS = 60
_LAYER_EDGES = np.linspace(0.0, 1.0, _LAYERS + 1)
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
    return finite_columns(raw.xyz).T.astype(np.float64)


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
    xyz = finite_columns(raw.xyz)
    count = xyz.shape[1]
    places = sample_places(len(raw.xyz))
    at_origin = count - int(np.count_nonzero(xyz.any(axis=0)))
    ordered = np.sort(xyz, axis=1)
    smallest, low, median, high, largest = _percentile_columns(ordered, (0, 2, 50, 98, 100))
    x, y = xyz[:2].astype(np.float64)
    distance = np.sqrt(x * x + y * y)
    mean_x, mean_y = _mean_direction(x, y, distance)
    return ScanFacts(
        frame_id=frame_id,
        points=len(raw.xyz),
        not_finite=len(raw.xyz) - count,
        at_origin=at_origin,
        repeated=_repeated(xyz.T, at_origin) if count_repeated else 0,
        low=low,
        median=median,
        high=high,
        smallest=smallest,
        largest=largest,
        range_99=_highest_percentile(distance) if count else 0.0,
        layer=_fullest_layer(_heights_around(xyz[2], distance)),
        bearing_rad=math.atan2(mean_y, mean_x),
        concentration=math.hypot(mean_x, mean_y),
        intensity=_intensity_range(raw.intensity),
        divisor=intensity_divisor(raw.intensity),
        sample=raw if places is None else _taken(raw, places),
    )


def finite_columns(xyz: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the rows whose coordinates are all finite as (3, N) columns, which numpy handles faster."""
    columns = np.ascontiguousarray(xyz.T)
    # A signalling NaN warns, and the sum of finite numbers may overflow: both lead to the longer way.
    with np.errstate(over="ignore", invalid="ignore"):
        all_finite = math.isfinite(columns.sum())
    return columns if all_finite else columns[:, np.isfinite(columns).all(axis=0)]


def _taken(raw: RawCloud, places: npt.NDArray[np.intp]) -> RawCloud:
    return RawCloud(raw.xyz.take(places, 0), None if raw.intensity is None else raw.intensity.take(places))


def _percentile_columns(
    ordered: npt.NDArray[np.float32], percents: tuple[float, ...]
) -> npt.NDArray[np.float64]:
    """Return :func:`_percentile` of C sorted columns (C, N): (P, C), zeros if N is 0."""
    if not ordered.shape[1]:
        return np.zeros((len(percents), len(ordered)))
    places = [_place(percent, ordered.shape[1]) for percent in percents]
    around = ordered.T.take([place for below, above, _ in places for place in (below, above)], 0)
    lower, upper = around[::2].astype(np.float64), around[1::2]
    return np.asarray(lower + (upper - lower) * np.array([[share] for _, _, share in places]))


def _percentile(ordered: npt.NDArray[Any], percent: float) -> float:
    """Return what ``np.percentile`` does, in a fraction of its time.

    Args:
        ordered: numbers of which those around the percentile are in their sorted place.
        percent: 0 to 100.
    """
    below, above, share = _place(percent, len(ordered))
    lower = float(ordered[below])
    return lower + (float(ordered[above]) - lower) * share


def _highest_percentile(values: npt.NDArray[np.float64]) -> float:
    """Return the 99th percentile of numbers in any order; sorting all would take five times as long."""
    below, above, _ = _place(99, len(values))
    return _percentile(np.partition(values, (below, above)), 99)


def _place(percent: float, count: int) -> tuple[int, int, float]:
    """Return the neighbours of a percentile among sorted numbers, and how far it is from the first."""
    place = percent / 100 * (count - 1)
    return int(place), min(int(place) + 1, count - 1), place % 1.0


def _mean_direction(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], distance: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """Return the mean of the unit vectors to the points; those on the sensor's axis count as forward."""
    if not len(x):
        return 0.0, 0.0
    away = distance > 0
    distance = np.where(away, distance, 1.0)
    on_axis = len(x) - int(np.count_nonzero(away))
    return (float((x / distance).sum()) + on_axis) / len(x), float((y / distance).sum()) / len(x)


def _repeated(xyz: npt.NDArray[np.float32], at_origin: int) -> int:
    # Compare 64-bit hashes of rows; collisions are negligible.
    bits = np.ascontiguousarray(xyz + np.float32(0)).view(np.uint32).astype(np.uint64)
    mixed = bits @ np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
    return len(mixed) - len(np.unique(mixed)) - max(at_origin - 1, 0)


def _heights_around(
    heights: npt.NDArray[np.float32], distance: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the heights off the own vehicle, whose roof would look like ground (nuScenes)."""
    around = heights[distance > _OWN_VEHICLE_M]
    return around if len(around) > 0.1 * len(heights) else heights


def _fullest_layer(heights: npt.NDArray[np.float32]) -> float:
    if not len(heights):
        return 0.0
    ordered = np.sort(heights)
    low, high = _percentile(ordered, 1), _percentile(ordered, 99)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        # Too flat for a histogram.
        return low
    edges = low + (high - low) * _LAYER_EDGES
    ends = ordered.searchsorted(edges)
    # The last layer includes its upper edge.
    ends[-1] = ordered.searchsorted(high, side="right")
    fullest = int((ends[1:] - ends[:-1]).argmax())
    return float(edges[fullest] + edges[fullest + 1]) / 2


def _intensity_range(intensity: npt.NDArray[Any] | None) -> tuple[float, float, float] | None:
    if intensity is None:
        return None
    ordered = np.sort(finite_numbers(intensity))
    if not len(ordered):
        return None
    return float(ordered[0]), _percentile(ordered, 50), float(ordered[-1])
