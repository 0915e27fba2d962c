"""Checks of origin, unit, axes and ground of scans, with transforms that fix them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import numpy.typing as npt

from perception.io.transform import TRAINED_SENSOR_HEIGHT_M, ScanTransform
from perception.scans.facts import ScanFacts, measure_scan
from perception.scans.finding import Finding

#: Ground heights z at which the shipped weights (z range -3 to 1 m) work as well as at -1.73 m. On every
#: second validation frame they find 40 to 45 of 51 objects for ground from -2.7 to -0.7 m, but 36 at -3.0 m.
_ABOVE_LOWEST_M, _BELOW_HIGHEST_M = 0.4, 1.6
GROUND_M = (-3.0 + _ABOVE_LOWEST_M, 1.0 - _BELOW_HIGHEST_M)

_LARGEST_RANGE_M = 300.0
_SMALLEST_RANGE_M = 2.0
_USUAL_RANGE_M = 60.0
_USUAL_HEIGHT_SPREAD_M = 3.0
_FOOT_M = 0.3048
_UNITS = {"feet": _FOOT_M, "centimetres": 0.01, "millimetres": 0.001}
#: Usual heights of a sensor. A ground that fits only in feet is probably measured in feet.
_USUAL_SENSOR_M = (1.2, 2.5)
#: No sensor is further below the ground, so most points below such a ground mean that z points down.
_HIGHEST_GROUND_M = 1.0
#: Axes that point forward, left and up, by direction of the points in quarter turns from x.
_AXES_FORWARD = {1: "y,-x,z", 2: "-x,-y,z", 3: "-y,x,z"}


def usable_ground_m(heights_m: tuple[float, float]) -> tuple[float, float]:
    """Return the lowest and highest usable ground z for a detector's range of heights."""
    return heights_m[0] + _ABOVE_LOWEST_M, heights_m[1] - _BELOW_HIGHEST_M


def check_geometry(
    scans: Sequence[ScanFacts],
    *,
    ground_m: tuple[float, float] = GROUND_M,
    sensor_height_m: float | None = None,
    known_forward: bool = False,
) -> list[Finding]:
    """Check origin, unit, axes and ground, in this order; each check assumes that earlier findings are fixed.

    Args:
        scans: measured scans with at least about a hundred finite points each.
        ground_m: lowest and highest usable z of the ground.
        sensor_height_m: given sensor height, which shifts the ground.
        known_forward: True if x is known to point forward, so that all points may lie behind.
    """
    findings: list[Finding] = []
    raised_m = 0.0 if sensor_height_m is None else sensor_height_m - TRAINED_SENSOR_HEIGHT_M
    for check in (_check_origin, _check_units, _check_up if known_forward else _check_axes):
        found = check(scans)
        if found is not None:
            findings.append(found)
            if found.transform is None:
                return findings
            scans = [_changed(scan, found.transform) for scan in scans]
    ground = _check_ground(scans, ground_m, raised_m)
    return findings if ground is None else [*findings, ground]


def _changed(scan: ScanFacts, transform: ScanTransform) -> ScanFacts:
    sample = replace(scan.sample, xyz=transform.apply_xyz(scan.sample.xyz))
    return measure_scan(scan.frame_id, sample, count_repeated=False)


def _check_origin(scans: Sequence[ScanFacts]) -> Finding | None:
    offset = median([float(np.hypot(scan.median[0], scan.median[1])) for scan in scans])
    spread = median([float((scan.high - scan.low).max()) for scan in scans])
    if offset < 100 or offset < 2 * spread:
        return None
    return Finding(
        "error",
        "origin",
        f"The points lie {offset:.0f} m from the origin and span {spread:.0f} m, so the scans are probably"
        " in map coordinates.",
        "Transform every scan (and its labels) to the sensor's frame by its pose.",
    )


def _check_units(scans: Sequence[ScanFacts]) -> Finding | None:
    extent = median([_extent(scan) for scan in scans])
    if extent > _LARGEST_RANGE_M:
        thickness = median([float((scan.high - scan.low).min()) for scan in scans])
        unit = min(_UNITS, key=lambda name: _unit_cost(extent, thickness, _UNITS[name]))
        return Finding(
            "error",
            "units",
            f"The points reach {extent:.0f} units from the sensor instead of at most"
            f" {_LARGEST_RANGE_M:.0f} metres, so the coordinates seem to be in {unit}.",
            f"{ScanTransform(_UNITS[unit]).instruction} when exporting the scans.",
            transform=ScanTransform(scale=_UNITS[unit]),
        )
    if extent < _SMALLEST_RANGE_M:
        return Finding(
            "error",
            "units",
            f"The points reach only {extent:.3g} units from the sensor, so the coordinates seem to be"
            " normalized or in kilometres.",
            "Export the scans in metres, without normalization.",
        )
    return None


def _extent(scan: ScanFacts) -> float:
    return float(np.abs([scan.low, scan.high]).max())


def _unit_cost(extent: float, thickness: float, metres: float) -> float:
    """Return a cost that grows as reach and height of a scan become unusual in a unit."""
    reach = abs(np.log(extent * metres / _USUAL_RANGE_M))
    height = abs(np.log(max(thickness, 1e-6) * metres / _USUAL_HEIGHT_SPREAD_M))
    return float(reach + height)


def _check_axes(scans: Sequence[ScanFacts]) -> Finding | None:
    """Check up and forward as one finding, because a command takes one ``--axes``."""
    up = _check_up(scans)
    if up is None or up.transform is None:
        return _check_forward(scans)
    turned = up.transform
    forward = _check_forward([_changed(scan, turned) for scan in scans])
    if forward is None or forward.transform is None:
        return up
    both = turned.then(forward.transform)
    ahead, _, upward = (both.axes or "").split(",")
    evidence = up.message.partition(", so z is not up")[0].rstrip(".")
    return replace(
        up,
        message=f"{evidence}, and nearly all of them lie towards {ahead}: {ahead} seems to point forward and"
        f" {upward} up.",
        fix=f"{both.instruction} when exporting the scans. The frame is x forward, y left, z up.",
        transform=both,
    )


def _check_up(scans: Sequence[ScanFacts]) -> Finding | None:
    spread = _middle([scan.high - scan.low for scan in scans])
    up_tail = _middle([scan.high - scan.median for scan in scans])
    down_tail = _middle([scan.median - scan.low for scan in scans])
    thin = int(spread.argmin())
    if thin != 2:
        return _thin_axis_finding(thin, spread, points_up=bool(up_tail[thin] > down_tail[thin]))
    layer = median([scan.layer for scan in scans])
    if layer > 0.3 and down_tail[2] > (1 if layer > _HIGHEST_GROUND_M else 2) * up_tail[2]:
        return Finding(
            "error",
            "axes",
            f"z seems to point down: the ground lies at z = {layer:.1f} m, above nearly everything else.",
            "Replace y by -y and z by -z, so that x points forward, y left and z up.",
            transform=ScanTransform(axes="x,-y,-z"),
        )
    return None


def _middle(vectors: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return the median of each component; numpy's takes longer than all other checks of one scan."""
    return vectors[0] if len(vectors) == 1 else np.asarray(np.median(vectors, axis=0))


def _thin_axis_finding(thin: int, spread: npt.NDArray[np.float64], *, points_up: bool) -> Finding | None:
    others = np.delete(spread, thin)
    if spread[thin] >= 0.5 * others.min():
        # Points on a line do not show a plane either.
        return None
    name = "xyz"[thin]
    if name == "y" and not points_up:
        what, axes = "these look like camera axes (x right, y down, z forward)", "z,-x,-y"
        fix = ScanTransform(axes=axes).instruction
    elif name == "y":
        what, axes = "y seems to point up (x right, y up, z backward, as in graphics)", "-z,-x,y"
        fix = ScanTransform(axes=axes).instruction
    else:
        what, axes = f"x seems to point {'up' if points_up else 'down'}", "-z,y,x" if points_up else "z,y,-x"
        fix = f"Write the {'' if points_up else 'negative '}old x as z, and let x point forward and y left"
    return Finding(
        "error",
        "axes",
        f"The points are flat along {name} ({spread[thin]:.1f} m), not along z ({spread[2]:.1f} m),"
        f" so z is not up: {what}.",
        f"{fix} when exporting the scans. The frame is x forward, y left, z up.",
        transform=ScanTransform(axes=axes),
    )


def _check_forward(scans: Sequence[ScanFacts]) -> Finding | None:
    concentrated = [scan for scan in scans if scan.concentration > 0.6]
    away = [scan for scan in concentrated if abs(scan.bearing_rad) > np.pi / 3]
    if 2 * len(away) <= len(scans):
        return None
    bearing = float(np.degrees(np.median([scan.bearing_rad for scan in away])))
    side = "behind" if abs(bearing) > 120 else "left of" if bearing > 0 else "right of"
    return Finding(
        "error",
        "axes",
        f"Nearly all points lie {side} the sensor (mean direction {bearing:.0f} degrees from +x),"
        " so x does not point forward.",
        f"Turn scans and labels by {-bearing:.0f} degrees about z, so that x points forward and y left.",
        transform=ScanTransform(axes=_AXES_FORWARD[round(bearing / 90) % 4]),
    )


def _check_ground(
    scans: Sequence[ScanFacts], ground_m: tuple[float, float], raised_m: float
) -> Finding | None:
    layer = median([scan.layer for scan in scans])
    if ground_m[0] <= layer + raised_m <= ground_m[1]:
        return None
    # Adding 0.0 removes the sign of a negative zero.
    height_m = round(-layer, 2) + 0.0
    given = f" (given sensor height {raised_m + TRAINED_SENSOR_HEIGHT_M:.2f} m)" if raised_m else ""
    low, high = _USUAL_SENSOR_M
    feet = not raised_m and height_m > high and low <= height_m * _FOOT_M <= high
    given += f" ({layer * _FOOT_M:.2f} m if the coordinates are in feet: --scale {_FOOT_M})" if feet else ""
    return Finding(
        "warning",
        "ground",
        f"The ground seems to be at z = {layer:.2f} m{given}, but models trained on KITTI expect -1.7 m"
        f" (sensor {TRAINED_SENSOR_HEIGHT_M} m above the ground).",
        f"Add {-1.7 - layer:.2f} m to z of points and labels, or train on this data with its own height"
        " range.",
        transform=ScanTransform(sensor_height_m=height_m),
    )
