"""Compact points for a page: 16 bits per axis and 8 bits of intensity.

The format is little-endian int16 steps from an origin, then one byte of intensity per point, in base64.
Without base64 that is 7 bytes per point; 120,000 points take 1.1 MB.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perception.types import FloatArray
from perception.visualise.scene import Float64Array, even_rows, finite_points, height_range

#: Points farther from the centre of the cloud are dropped, because they would coarsen all others.
MAX_REACH_M = 1000.0
_STEPS = 32767


@dataclass(frozen=True)
class PackedPoints:
    """Points in the format of the page.

    Attributes:
        origin_m: (3,) float64, metres: origin of the steps.
        step_m: (3,) float64, metres: length of one step per axis; the largest error is half of it.
        steps: (N, 3) int16.
        intensity: (N,) uint8, where 255 means 1.
        heights_m: heights at the two ends of the colour scale.
        near_count: points of the cloud within reach.
        notes: descriptions of dropped points.
    """

    origin_m: Float64Array
    step_m: Float64Array
    steps: np.ndarray[Any, np.dtype[np.int16]]
    intensity: np.ndarray[Any, np.dtype[np.uint8]]
    heights_m: tuple[float, float]
    near_count: int
    notes: tuple[str, ...]

    def thinned(self, most: int) -> PackedPoints:
        """Return at most this many points, spread evenly."""
        if len(self.steps) <= most:
            return self
        rows = even_rows(len(self.steps), most)
        return replace(self, steps=self.steps[rows], intensity=self.intensity[rows])

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Notes, including one about thinning."""
        if len(self.steps) == self.near_count:
            return self.notes
        return (*self.notes, f"Showing {len(self.steps):,} of {self.near_count:,} points, spread evenly.")

    def to_base64(self) -> str:
        """Return all steps (little-endian int16), then all intensities."""
        raw = self.steps.astype("<i2").tobytes() + self.intensity.tobytes()
        return base64.b64encode(raw).decode("ascii")


def pack_points(points: FloatArray, most: int) -> PackedPoints:
    """Round points to 16 bits per axis and drop points that cannot be shown.

    Args:
        points: (N, 4) float32: x, y, z in metres, intensity in [0, 1]. If an intensity exceeds 1, all are
            taken as values up to 255.
        most: number of points to keep.
    """
    finite = finite_points(points)
    near = _near_points(finite)
    notes = (
        _left_out(len(points) - len(finite), "not finite"),
        _left_out(len(finite) - len(near), f"more than {MAX_REACH_M:.0f} m from the centre"),
    )
    kept = near[even_rows(len(near), most)]
    xyz = kept[:, :3].astype(np.float64)
    low, high = (xyz.min(axis=0), xyz.max(axis=0)) if len(xyz) else (np.zeros(3), np.zeros(3))
    origin_m = (low + high) / 2
    step_m = np.maximum((high - low) / 2, 0.001) / _STEPS
    steps = np.rint((xyz - origin_m) / step_m).astype(np.int16)
    intensity = kept[:, 3] / (255.0 if len(kept) and kept[:, 3].max() > 1.0 else 1.0)
    return PackedPoints(
        origin_m,
        step_m,
        steps,
        np.rint(np.clip(intensity, 0.0, 1.0) * 255).astype(np.uint8),
        height_range(kept[:, 2]),
        len(near),
        tuple(note for note in notes if note),
    )


def _near_points(points: FloatArray) -> FloatArray:
    if not len(points) or np.abs(points[:, :3]).max() <= MAX_REACH_M / 2:
        return points
    middle = np.median(points[:, :3].astype(np.float64), axis=0)
    near: FloatArray = points[(np.abs(points[:, :3] - middle) <= MAX_REACH_M).all(axis=1)]
    return near


def _left_out(count: int, reason: str) -> str:
    return f"Skipped {count:,} point{'s' if count != 1 else ''}: {reason}." if count else ""
