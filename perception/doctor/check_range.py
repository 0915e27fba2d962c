"""Checks of scans and boxes against the detection range."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.config import PillarConfig
from perception.doctor.label_facts import Array, LabelFacts
from perception.scans.facts import ScanFacts
from perception.scans.finding import Finding, Severity
from perception.scans.tensors import measured_range_m

_MANY, _SOME = 0.5, 0.05
#: A smaller fraction of the points counts as none.
_NEARLY_NONE = 0.02


def check_range(
    scans: Sequence[ScanFacts],
    frames: Sequence[LabelFacts],
    pillars: PillarConfig,
    *,
    sensor_height_m: float | None,
) -> list[Finding]:
    """Find points and boxes outside of the detection range.

    Args:
        scans: measured scans.
        frames: measured labels.
        pillars: range of the detector.
        sensor_height_m: sensor height of the scans, if known; the detector shifts them to 1.73 m.
    """
    if pillars.range_m is None:
        return []
    low, high = measured_range_m(pillars, sensor_height_m)
    spans = ", ".join(f"{name} {a:g} to {b:g}" for name, a, b in zip("xyz", low, high, strict=True))
    shares = [float(_within(scan.sample.xyz, low, high).mean()) for scan in scans if scan.finite]
    if shares and median(shares) < _NEARLY_NONE:
        what = f"The range of the config ({spans} m) contains only {median(shares):.1%} of the points."
        fix = "Correct pillars.range_m in the config, or unit and axes of the scans."
        return [Finding("error", "range", what, fix)]
    centres = np.concatenate([np.zeros((0, 3)), *(frame.centres for frame in frames)])
    if not len(centres):
        return []
    outside = ~_within(centres, low, high)
    share = float(outside.mean())
    if share == 0:
        return []
    ids = tuple(frame.frame_id for frame in frames if not _within(frame.centres, low, high).all())
    side = _side(centres[outside], low, high)
    severity: Severity = "error" if share > _MANY else "warning" if share > _SOME else "info"
    what = f"{share:.1%} of the boxes are out of the range of the config ({spans} m), mostly {side}."
    fix = "Enlarge pillars.range_m in the config to learn and detect them."
    return [Finding(severity, "range", what, fix, ids)]


def _within(xyz: npt.NDArray[Any], low: Array, high: Array) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        return np.asarray(((xyz >= low) & (xyz < high)).all(axis=1))


def _side(centres: Array, low: Array, high: Array) -> str:
    """Return the side of the range on which most centres lie."""
    counts = {}
    for axis, name in enumerate("xyz"):
        counts[f"below {name}"] = int((centres[:, axis] < low[axis]).sum())
        counts[f"above {name}"] = int((centres[:, axis] >= high[axis]).sum())
    return max(counts, key=lambda side: counts[side])
