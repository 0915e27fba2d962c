"""Warnings of a detector about its scans."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from perception.config import PillarConfig
from perception.errors import ScanWarning
from perception.io.raw import FLAT_INTENSITY, RawCloud
from perception.io.transform import ScanTransform
from perception.scans.facts import ScanFacts, finite_columns, measure_scan, sample_places
from perception.scans.finding import Finding
from perception.scans.geometry import check_geometry, usable_ground_m
from perception.scans.tensors import Cloud, measured_range_m, raised_by_m
from perception.types import LIDAR_FRAME, FloatArray, PointCloud

#: With fewer finite points, axes and ground are unknown.
_FEW_POINTS = 100
#: Warn above this fraction of points out of range. Half of a full turn lies behind the sensor.
_MUCH_OUTSIDE = 0.4
#: Unless every frame is checked: the number of first frames, and the interval of later ones.
_FIRST, _EVERY = 10, 100
#: Part of the one warning that is given once instead of for every scan.
OUT_OF_RANGE = "of the points are out of the range of these weights"


class ScanWatch:
    """Fast checks of unit, axes, ground, intensity and range on about a thousand points of a scan.

    CUDA tensors are not checked, because that would wait for the GPU. The warning about range is given once.

    Args:
        config: range of the detector.
        every_frame: True checks all frames, False the first ten and every hundredth.
    """

    def __init__(self, config: PillarConfig, *, every_frame: bool) -> None:
        self._config = config
        self._every_frame = every_frame
        # In metres of a scan from the sensor height of the training data.
        shift = raised_by_m(None, config.shrink)
        low, high = usable_ground_m(config.heights_m)
        self._ground_m = low * config.shrink - shift, high * config.shrink - shift
        # Sensor height, and minimum and maximum of the range for it.
        self._range_of: tuple[float | None, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] | None
        self._range_of = None
        self._frames = 0
        self._range_reported = self._muted = False

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Return no warnings and count no frames, for warm-up runs."""
        before, self._muted = self._muted, True
        try:
            yield
        finally:
            self._muted = before

    def with_pillars(self, found: list[str], cloud: Cloud, pillars: int) -> list[str]:
        """Return the warnings of :meth:`check`; add one if a scan without warnings has no pillar.

        Args:
            found: warnings about the scan.
            cloud: the scan.
            pillars: number of non-empty pillars; 0 means that the scan is in another unit or frame.
        """
        if self._muted or pillars != 0 or found or len(cloud) < _FEW_POINTS:
            return found
        return [
            f"no point is within the range of these weights ({self._spans(None)}), so nothing is detected."
            " For millimetres, use ScanTransform(scale=0.001).apply(points), or --scale 0.001 for files."
        ]

    def check(self, cloud: Cloud) -> list[str]:
        """Return warnings about a scan from its points, without waiting for a GPU."""
        if self._muted:
            return []
        found = list(cloud.warnings) if isinstance(cloud, PointCloud) else []
        self._frames += 1
        if not (self._every_frame or self._frames <= _FIRST or self._frames % _EVERY == 0):
            return found
        points = cloud.points if isinstance(cloud, PointCloud) else cloud
        if isinstance(points, torch.Tensor) and points.device.type != "cpu":
            return found
        if not len(points):
            return [*found, "the scan is empty, so nothing is detected. Check the sensor or the file."]
        rows = _rows(points, sample_places(len(points)))
        raw = RawCloud(rows[:, :3], rows[:, 3])
        facts = measure_scan("", raw, count_repeated=False)
        if not facts.finite and not np.isfinite(_rows(points, None)).all(axis=1).any():
            return [
                *found,
                "the scan has no finite point, so nothing is detected. Check the sensor or the file.",
            ]
        if facts.finite < _FEW_POINTS:
            return found
        height_m = cloud.sensor_height_m if isinstance(cloud, PointCloud) else None
        # A rig describes how its sensors are mounted, and all of them may look backward.
        described = isinstance(cloud, PointCloud) and cloud.frame != LIDAR_FRAME
        geometry = check_geometry(
            [facts], ground_m=self._ground_m, sensor_height_m=height_m, known_forward=described
        )
        found += [_text(finding) for finding in geometry]
        found += _about_intensity(facts)
        if not any(finding.severity == "error" for finding in geometry):
            found += self._about_range(raw.xyz, height_m)
        return found

    def _about_range(self, xyz: FloatArray, height_m: float | None) -> list[str]:
        if self._range_reported:
            return []
        low, high = self._range_m(height_m)
        columns = finite_columns(xyz)
        inside = ((columns >= low[:, None]) & (columns < high[:, None])).all(axis=0)
        outside = 1 - np.count_nonzero(inside) / columns.shape[1]
        if outside < _MUCH_OUTSIDE:
            return []
        self._range_reported = True
        return [f"{outside:.0%} {OUT_OF_RANGE} ({self._spans(height_m)}). Nothing is detected there."]

    def _range_m(self, height_m: float | None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return minimum and maximum x, y, z in metres of a scan; computed again for another height."""
        if self._range_of is None or self._range_of[0] != height_m:
            self._range_of = height_m, measured_range_m(self._config, height_m)
        return self._range_of[1]

    def _spans(self, height_m: float | None) -> str:
        low, high = self._range_m(height_m)
        return ", ".join(
            f"{name} {first:g} to {last:g} m"
            for name, first, last in zip("xyz", low, high, strict=True)
            if np.isfinite(first)
        )


def emit_once(messages: Sequence[str], emitted: set[str], category: type[UserWarning] = ScanWarning) -> None:
    """Emit warnings in the name of the calling program, the first of each kind.

    Args:
        messages: warnings of a frame.
        emitted: emitted kinds, which is extended. Messages that differ only in numbers are one kind.
        category: class of the warnings.
    """
    for message in messages:
        kind = re.sub(r"[-+.\d]+", "#", message)
        if kind not in emitted:
            emitted.add(kind)
            warnings.warn(message, category, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of this package, for :func:`emit_once`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("perception."):
        frame, level = frame.f_back, level + 1
    return level


def _rows(points: FloatArray | torch.Tensor, places: npt.NDArray[np.intp] | None) -> FloatArray:
    """Return (M, 4) float32 rows; None means all."""
    if isinstance(points, torch.Tensor):
        points = points.detach()
        points = (points if places is None else points[torch.from_numpy(places)]).float().numpy()
    elif places is not None:
        # Twenty times as fast as points[places].
        points = points.take(places, 0)
    return PointCloud(points).points


def _about_intensity(facts: ScanFacts) -> list[str]:
    if facts.intensity is None:
        return []
    low, middle, high = facts.intensity
    if facts.divisor == 1 and high > 0:
        near = 0 if middle < FLAT_INTENSITY else 1
        if FLAT_INTENSITY <= middle <= 1 - FLAT_INTENSITY:
            return []
        return [
            f"more than half of the intensities are close to {near} (median {middle:.2g}), so these weights"
            " see no intensity. Add --intensity-scale MAX, about the 99th percentile of the stored values."
        ]
    if low == high == 0:
        return ["intensity is zero or missing, so fewer objects are detected. Export the sensor's intensity."]
    message = f"intensity spans {low:.4g} to {high:.4g}; expected 0 to 1"
    if facts.divisor is None:
        return [f"{message}. Rescale it."]
    return [f"{message}{_fix(ScanTransform(intensity_scale=max(facts.divisor, 255.0)))}"]


def _text(finding: Finding) -> str:
    message = f"{finding.message[0].lower()}{finding.message[1:]}".rstrip(".")
    return f"{message}{'. ' + finding.fix if finding.transform is None else _fix(finding.transform)}"


def _fix(transform: ScanTransform) -> str:
    return f". Add {transform.options}, or use {transform.expression}.apply(points) in Python."
