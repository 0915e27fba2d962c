"""Checks that need the scans alone: damage, units, axes, origin, ground, intensity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perception.doctor.report import Finding
from perception.doctor.scan_facts import ScanFacts

#: Checks after whose errors the place of labels cannot be judged.
PLACEMENT_CHECKS = frozenset({"units", "axes", "origin"})

_FEW_POINTS = 100
_LARGEST_RANGE_M = 300.0
_SMALLEST_RANGE_M = 2.0
_USUAL_RANGE_M = 60.0
_USUAL_HEIGHT_SPREAD_M = 3.0
_UNITS = {"centimetres": 100.0, "millimetres": 1000.0}
#: Heights of the ground that models trained on KITTI (sensor at 1.73 m) can cope with.
_GROUND_M = (-3.0, -0.5)


def check_scans(scans: Sequence[ScanFacts]) -> list[Finding]:
    """All checks of scans; what follows from an error is not reported again."""
    findings = _check_rows(scans)
    filled = [scan for scan in scans if scan.finite >= _FEW_POINTS]
    if filled:
        geometry = _check_origin(filled) or _check_units(filled) or _check_axes(filled)
        findings += geometry or _check_ground(filled)
        findings += _check_intensity(filled)
    return findings


def _check_rows(scans: Sequence[ScanFacts]) -> list[Finding]:
    findings: list[Finding] = []
    empty = tuple(scan.frame_id for scan in scans if not scan.finite)
    if empty:
        findings.append(
            Finding(
                "error" if len(empty) == len(scans) else "warning",
                "empty",
                f"{len(empty)} of {len(scans)} frames have no usable point.",
                "Record or export them again, or take them out of the data set.",
                empty,
            )
        )
    few = tuple(scan.frame_id for scan in scans if 0 < scan.finite < _FEW_POINTS)
    if few:
        findings.append(
            Finding(
                "warning",
                "empty",
                f"{len(few)} frames have fewer than {_FEW_POINTS} points.",
                "Check that the whole scan was exported; take them out if the sensor was blocked.",
                few,
            )
        )
    bad = [scan for scan in scans if scan.not_finite]
    if bad:
        share = sum(scan.not_finite for scan in bad) / sum(scan.points for scan in bad)
        findings.append(
            Finding(
                "warning",
                "not finite",
                f"{len(bad)} frames hold NaN or infinite coordinates ({share:.1%} of their points).",
                "They are dropped on detection; better leave out missing returns on export.",
                _ids(bad),
            )
        )
    zeros = [scan for scan in scans if scan.at_origin > max(10, 0.01 * scan.finite)]
    if zeros:
        findings.append(
            Finding(
                "warning",
                "duplicates",
                f"In {len(zeros)} frames more than 1 % of the points lie exactly at (0, 0, 0).",
                "These are missing returns written as zeros: leave them out on export.",
                _ids(zeros),
            )
        )
    repeated = [scan for scan in scans if scan.repeated > max(10, 0.01 * scan.finite)]
    if repeated:
        share = sum(scan.repeated for scan in repeated) / sum(scan.finite for scan in repeated)
        findings.append(
            Finding(
                "warning",
                "duplicates",
                f"In {len(repeated)} frames points occur more than once ({share:.0%} of their points).",
                "Check whether a scan was written twice or clouds were joined; keep each point once.",
                _ids(repeated),
            )
        )
    return findings


def _check_origin(scans: Sequence[ScanFacts]) -> list[Finding]:
    offset = _median([float(np.hypot(scan.median[0], scan.median[1])) for scan in scans])
    spread = _median([float((scan.high - scan.low).max()) for scan in scans])
    if offset < 100 or offset < 2 * spread:
        return []
    return [
        Finding(
            "error",
            "origin",
            f"The points lie around a place {offset:.0f} m from the origin and span {spread:.0f} m: the"
            " scans are probably in map coordinates, not in the frame of the sensor.",
            "Transform every scan (and its labels) into the frame of the sensor at its own pose.",
        )
    ]


def _check_units(scans: Sequence[ScanFacts]) -> list[Finding]:
    extent = _median([_extent(scan) for scan in scans])
    if extent > _LARGEST_RANGE_M:
        thickness = _median([float((scan.high - scan.low).min()) for scan in scans])
        unit = min(_UNITS, key=lambda name: _unit_cost(extent, thickness, _UNITS[name]))
        return [
            Finding(
                "error",
                "units",
                f"The points reach {extent:.0f} units from the sensor, expected are up to"
                f" {_LARGEST_RANGE_M:.0f} metres: the coordinates seem to be in {unit}.",
                f"Divide x, y, z by {_UNITS[unit]:.0f} when exporting the scans.",
            )
        ]
    if extent < _SMALLEST_RANGE_M:
        return [
            Finding(
                "error",
                "units",
                f"The points reach only {extent:.3g} units from the sensor: the coordinates seem to be"
                " normalised or in kilometres.",
                "Export the scans in metres, without normalising them.",
            )
        ]
    return []


def _extent(scan: ScanFacts) -> float:
    return float(np.abs([scan.low, scan.high]).max())


def _unit_cost(extent: float, thickness: float, per_metre: float) -> float:
    """How unusual a scan of this reach and height would be in this unit."""
    reach = abs(np.log(extent / per_metre / _USUAL_RANGE_M))
    height = abs(np.log(max(thickness, 1e-6) / per_metre / _USUAL_HEIGHT_SPREAD_M))
    return float(reach + height)


def _check_axes(scans: Sequence[ScanFacts]) -> list[Finding]:
    spread = np.median([scan.high - scan.low for scan in scans], axis=0)
    up_tail = np.median([scan.high - scan.median for scan in scans], axis=0)
    down_tail = np.median([scan.median - scan.low for scan in scans], axis=0)
    thin = int(spread.argmin())
    if thin != 2:
        return _thin_axis_finding(thin, spread, points_up=bool(up_tail[thin] > down_tail[thin]))
    layer = _median([scan.layer for scan in scans])
    if down_tail[2] > 2 * up_tail[2] and layer > 0.3:
        return [
            Finding(
                "error",
                "axes",
                f"z seems to point down: the fullest layer, the ground, lies at z = {layer:.1f} m,"
                " above nearly everything else.",
                "Turn the sensor frame to x forward, y left, z up: replace y by -y and z by -z.",
            )
        ]
    return _check_direction(scans)


def _thin_axis_finding(
    thin: int, spread: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *, points_up: bool
) -> list[Finding]:
    others = np.delete(spread, thin)
    if spread[thin] > 0.5 * others.min():
        return []
    name = "xyz"[thin]
    if name == "y" and not points_up:
        what = "these look like camera axes (x right, y down, z forward)"
        fix = "Write x = z, y = -x, z = -y (old values on the right)"
    elif name == "y":
        what = "y seems to point up (x right, y up, z backward, as in graphics)"
        fix = "Write x = -z, y = -x, z = y (old values on the right)"
    else:
        what = f"x seems to point {'up' if points_up else 'down'}"
        fix = f"Write the {'' if points_up else 'negative '}old x as z, and turn x to forward and y to left"
    return [
        Finding(
            "error",
            "axes",
            f"The points are flat along {name} ({spread[thin]:.1f} m), not along z ({spread[2]:.1f} m),"
            f" so z is not up: {what}.",
            f"{fix} when exporting the scans; the frame is x forward, y left, z up.",
        )
    ]


def _check_direction(scans: Sequence[ScanFacts]) -> list[Finding]:
    concentrated = [scan for scan in scans if scan.concentration > 0.6]
    away = [scan for scan in concentrated if abs(scan.bearing_rad) > np.pi / 3]
    if 2 * len(away) <= len(scans):
        return []
    bearing = float(np.degrees(np.median([scan.bearing_rad for scan in away])))
    side = "behind" if abs(bearing) > 120 else "left of" if bearing > 0 else "right of"
    return [
        Finding(
            "error",
            "axes",
            f"Nearly all points lie {side} the sensor (mean direction {bearing:.0f} degrees from +x):"
            " x does not point forward.",
            f"Turn the scans by {-bearing:.0f} degrees about z so that x is forward and y left"
            " (and the labels with them).",
        )
    ]


def _check_ground(scans: Sequence[ScanFacts]) -> list[Finding]:
    layer = _median([scan.layer for scan in scans])
    if _GROUND_M[0] <= layer <= _GROUND_M[1]:
        return []
    return [
        Finding(
            "warning",
            "ground",
            f"The ground seems to lie at z = {layer:.2f} m; models trained on KITTI expect about -1.7 m"
            " (origin at a sensor 1.73 m above the ground).",
            f"Add {-1.7 - layer:.2f} m to z of points and labels, or train on this data with its own"
            " height range.",
        )
    ]


def _check_intensity(scans: Sequence[ScanFacts]) -> list[Finding]:
    given = [(scan, scan.intensity) for scan in scans if scan.intensity is not None]
    unknown = [scan for scan, _ in given if scan.divisor is None]
    if unknown:
        return [
            Finding(
                "error",
                "intensity",
                f"Intensity is negative or above 65535 in {len(unknown)} frames: an unknown range.",
                "Rescale it to 0..1, or leave it out.",
                _ids(unknown),
            )
        ]
    dark = [scan for scan in scans if scan.intensity is None or scan.intensity[2] <= 0]
    if dark:
        return [
            Finding(
                "warning",
                "intensity",
                f"Intensity is zero or missing in {len(dark)} of {len(scans)} frames.",
                "Export the sensor's intensity; without it use weights trained without intensity.",
                _ids(dark) if len(dark) < len(scans) else (),
            )
        ]
    constant = [scan for scan, spread in given if spread[0] == spread[2]]
    if constant:
        return [
            Finding(
                "warning",
                "intensity",
                f"Intensity has one single value in {len(constant)} frames.",
                "Export the sensor's measured intensity.",
                _ids(constant),
            )
        ]
    return _check_intensity_scale(scans)


def _check_intensity_scale(scans: Sequence[ScanFacts]) -> list[Finding]:
    divisors = sorted({scan.divisor for scan in scans if scan.divisor is not None})
    if len(divisors) > 1:
        fewest = min(divisors, key=lambda divisor: sum(scan.divisor == divisor for scan in scans))
        odd = [scan for scan in scans if scan.divisor == fewest]
        ranges = " and ".join(f"0..{divisor:.0f}" for divisor in divisors)
        return [
            Finding(
                "error",
                "intensity",
                f"Intensity has different ranges in different frames ({ranges}), which the reader cannot"
                " know apart from dark scenes.",
                "Export all frames with intensity in 0..1.",
                _ids(odd),
            )
        ]
    if divisors and divisors[0] > 1:
        return [
            Finding(
                "info",
                "intensity",
                f"Intensity is stored as 0..{divisors[0]:.0f}; the reader divides it by that number.",
                "Nothing to do; other programs may want it in 0..1.",
            )
        ]
    return []


def _ids(scans: Sequence[ScanFacts]) -> tuple[str, ...]:
    return tuple(scan.frame_id for scan in scans)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))
