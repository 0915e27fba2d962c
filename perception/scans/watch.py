"""What a detector says about the scans that it is given."""

from __future__ import annotations

import math
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
from perception.scans.facts import ScanFacts, measure_scan, sample_places
from perception.scans.finding import Finding
from perception.scans.geometry import check_geometry, usable_ground_m
from perception.scans.tensors import Cloud, raised_m
from perception.types import FloatArray, PointCloud

#: Fewer finite points than this show neither axes nor ground.
_FEW_POINTS = 100
#: Of a full turn half lies behind; of what a camera sees a few in a hundred are too far.
_MUCH_OUTSIDE = 0.4
#: Where frames take a fraction of a millisecond, these are looked at: the first, and from then on some.
_FIRST, _EVERY = 10, 100
#: Of the one warning that is said once and not with every scan.
OUT_OF_RANGE = "of the points are out of the range of these weights"


class ScanWatch:
    """Cheap checks of unit, axes, ground, intensity and range, on some thousand points of a scan.

    Only what lies on the host is looked at: a CUDA tensor would have to be waited for. That most points are
    out of range holds for a sensor and not for a frame, and is said once.

    Args:
        config: range of the detector.
        every_frame: look at all of them; else at the first ten and at every hundredth.
    """

    def __init__(self, config: PillarConfig, *, every_frame: bool) -> None:
        bottom, top = config.heights_m
        limits = config.range_m or (-math.inf, -math.inf, bottom, math.inf, math.inf, top)
        self._low_m, self._high_m = np.array(limits[:3]), np.array(limits[3:])
        self._every_frame = every_frame
        self._ground_m = usable_ground_m(config.heights_m)
        self._frames = 0
        self._told_range = self._muted = False

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Say nothing, and count no frame: for runs whose detections nobody sees."""
        before, self._muted = self._muted, True
        try:
            yield
        finally:
            self._muted = before

    def __call__(self, cloud: Cloud, *, pillars: int | None = None) -> list[str]:
        """Return what a user should know of a scan, with what mends it; mostly nothing.

        Args:
            cloud: the scan.
            pillars: how many of the detector hold a point of it, if that is known. A scan on a GPU is not
                looked at, but none at all shows that it is in another unit or frame.
        """
        if self._muted:
            return []
        said = self._looked_at(cloud)
        if pillars == 0 and not said and len(cloud) >= _FEW_POINTS:
            said.append(
                f"none of the {len(cloud)} points lies within the range of these weights"
                f" ({self._spans(0.0)}): nothing is found; turn millimetres into metres by"
                " ScanTransform(scale=0.001).apply(points), in files by --scale 0.001"
            )
        return said

    def _looked_at(self, cloud: Cloud) -> list[str]:
        said = list(cloud.warnings) if isinstance(cloud, PointCloud) else []
        self._frames += 1
        if not (self._every_frame or self._frames <= _FIRST or self._frames % _EVERY == 0):
            return said
        points = cloud.points if isinstance(cloud, PointCloud) else cloud
        if isinstance(points, torch.Tensor) and points.device.type != "cpu":
            return said
        if not len(points):
            return [*said, "the scan is empty: no object can be found"]
        rows = _rows(points, sample_places(len(points)))
        raw = RawCloud(rows[:, :3], rows[:, 3])
        facts = measure_scan("", raw, count_repeated=False)
        if not facts.finite and not np.isfinite(_rows(points, None)).all(axis=1).any():
            return [*said, "the scan holds no finite point: no object can be found"]
        if facts.finite < _FEW_POINTS:
            return said
        height_m = cloud.sensor_height_m if isinstance(cloud, PointCloud) else None
        geometry = check_geometry([facts], ground_m=self._ground_m, sensor_height_m=height_m)
        said += [_worded(finding) for finding in geometry]
        said += _about_intensity(facts)
        if not any(finding.severity == "error" for finding in geometry):
            said += self._about_range(raw.xyz, raised_m(cloud))
        return said

    def _about_range(self, xyz: FloatArray, raised: float) -> list[str]:
        if self._told_range:
            return []
        low, high = self._limits(raised)
        finite = xyz[np.isfinite(xyz).all(axis=1)]
        outside = 1 - float(((finite >= low) & (finite < high)).all(axis=1).mean())
        if outside < _MUCH_OUTSIDE:
            return []
        self._told_range = True
        return [f"{outside:.0%} {OUT_OF_RANGE} ({self._spans(raised)}): nothing is found there"]

    def _limits(self, raised: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The range as a scan of another height sees it."""
        shift = np.array([0.0, 0.0, raised])
        return self._low_m - shift, self._high_m - shift

    def _spans(self, raised: float) -> str:
        low, high = self._limits(raised)
        return ", ".join(
            f"{name} {first:g} to {last:g} m"
            for name, first, last in zip("xyz", low, high, strict=True)
            if np.isfinite(first)
        )


def emit_once(messages: Sequence[str], emitted: set[str]) -> None:
    """Emit messages about a scan as Python warnings of the calling program, the first of each kind.

    Args:
        messages: of a frame.
        emitted: kinds that were emitted; added to. Messages that differ in numbers alone are one kind.
    """
    for message in messages:
        kind = re.sub(r"[-+.\d]+", "#", message)
        if kind not in emitted:
            emitted.add(kind)
            warnings.warn(message, ScanWarning, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of this package, for :func:`emit_once`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("perception."):
        frame, level = frame.f_back, level + 1
    return level


def _rows(points: FloatArray | torch.Tensor, places: npt.NDArray[np.intp] | None) -> FloatArray:
    """(M, 4) float32: some rows, None for all."""
    if isinstance(points, torch.Tensor):
        points = points.detach()
        points = (points if places is None else points[torch.from_numpy(places)]).float().numpy()
    elif places is not None:
        points = points[places]
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
            " see none: say which stored value stands for 1 with --intensity-scale, about the 99th percentile"
        ]
    if low == high == 0:
        return ["intensity is zero or missing: these weights expect the sensor's, and find less without it"]
    message = f"intensity spans {low:.4g} to {high:.4g}; expected 0 to 1"
    if facts.divisor is None:
        return [f"{message}: rescale it"]
    return [f"{message}{_mended(ScanTransform(intensity_scale=max(facts.divisor, 255.0)))}"]


def _worded(finding: Finding) -> str:
    message = f"{finding.message[0].lower()}{finding.message[1:]}".rstrip(".")
    return f"{message}{': ' + finding.fix if finding.transform is None else _mended(finding.transform)}"


def _mended(transform: ScanTransform) -> str:
    return f"; mended by {transform.options}, in Python {transform.expression}.apply(points)"
