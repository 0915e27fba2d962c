"""Checks of scans: damage, units, axes, origin, ground, intensity."""

from __future__ import annotations

from collections.abc import Sequence

from perception.io.transform import ScanTransform
from perception.scans.facts import ScanFacts
from perception.scans.finding import Finding, with_frames
from perception.scans.geometry import check_geometry

#: After errors of these checks, positions of labels cannot be checked.
PLACEMENT_CHECKS = frozenset({"units", "axes", "origin"})

FEW_POINTS = 100


def check_scans(scans: Sequence[ScanFacts], *, sensor_height_m: float | None = None) -> list[Finding]:
    """Run all checks of scans; consequences of an error are not reported.

    Args:
        scans: measured scans.
        sensor_height_m: height of the sensor above the ground, if known.
    """
    findings = _check_rows(scans)
    filled = [scan for scan in scans if scan.finite >= FEW_POINTS]
    if filled:
        findings += check_geometry(filled, sensor_height_m=sensor_height_m)
        findings += _check_intensity(filled)
    return findings


def _check_rows(scans: Sequence[ScanFacts]) -> list[Finding]:
    empty = [scan for scan in scans if not scan.finite]
    few = [scan for scan in scans if 0 < scan.finite < FEW_POINTS]
    bad = [scan for scan in scans if scan.not_finite]
    bad_share = sum(scan.not_finite for scan in bad) / max(1, sum(scan.points for scan in bad))
    zeros = [scan for scan in scans if scan.at_origin > max(10, 0.01 * scan.finite)]
    repeated = [scan for scan in scans if scan.repeated > max(10, 0.01 * scan.finite)]
    repeated_share = sum(scan.repeated for scan in repeated) / max(1, sum(scan.finite for scan in repeated))
    return with_frames(
        Finding(
            "error" if len(empty) == len(scans) else "warning",
            "empty",
            f"{len(empty)} of {len(scans)} frames have no usable point.",
            "Record or export them again, or remove them from the data set.",
            _ids(empty),
        ),
        Finding(
            "warning",
            "empty",
            f"{len(few)} frames have fewer than {FEW_POINTS} points.",
            "Check that the whole scan was exported. Remove the frames if the sensor was blocked.",
            _ids(few),
        ),
        Finding(
            "warning",
            "not finite",
            f"{len(bad)} frames contain NaN or infinite coordinates ({bad_share:.1%} of their points).",
            "Leave out missing returns when exporting. The detector drops these points.",
            _ids(bad),
        ),
        Finding(
            "warning",
            "duplicates",
            f"In {len(zeros)} frames more than 1 % of the points lie exactly at (0, 0, 0).",
            "Leave out missing returns when exporting, instead of writing zeros.",
            _ids(zeros),
        ),
        Finding(
            "warning",
            "duplicates",
            f"{len(repeated)} frames contain repeated points ({repeated_share:.0%} of their points).",
            "Check whether a scan was written twice, and keep each point once.",
            _ids(repeated),
        ),
    )


def _check_intensity(scans: Sequence[ScanFacts]) -> list[Finding]:
    given = [(scan, scan.intensity) for scan in scans if scan.intensity is not None]
    unknown = [scan for scan, _ in given if scan.divisor is None]
    if unknown:
        what = f"Intensity is negative or above 65535 in {len(unknown)} frames."
        fix = (
            "Rescale it to 0..1, or leave it out. If the column is not intensity, name the columns"
            " (--columns x,y,z,intensity,ring)."
        )
        return [Finding("error", "intensity", what, fix, _ids(unknown))]
    dark = [scan for scan in scans if scan.intensity is None or scan.intensity[2] <= 0]
    if dark:
        what = f"Intensity is zero or missing in {len(dark)} of {len(scans)} frames."
        fix = "Export the sensor's intensity, or use weights that were trained without intensity."
        return [Finding("warning", "intensity", what, fix, _ids(dark) if len(dark) < len(scans) else ())]
    constant = [scan for scan, spread in given if spread[0] == spread[2]]
    if constant:
        what = f"Intensity is constant in {len(constant)} frames."
        fix = "Export the sensor's measured intensity."
        return [Finding("warning", "intensity", what, fix, _ids(constant))]
    return _check_intensity_scale(scans)


def _check_intensity_scale(scans: Sequence[ScanFacts]) -> list[Finding]:
    divisors = sorted({scan.divisor for scan in scans if scan.divisor is not None})
    if len(divisors) > 1:
        fewest = min(divisors, key=lambda divisor: sum(scan.divisor == divisor for scan in scans))
        odd = [scan for scan in scans if scan.divisor == fewest]
        ranges = " and ".join(f"0..{divisor:.0f}" for divisor in divisors)
        what = (
            f"Intensity has different ranges in different frames ({ranges}), which look the same as dark"
            " scenes."
        )
        fix, mend = "Export all frames with intensity in 0..1.", ScanTransform(intensity_scale=max(divisors))
        return [Finding("error", "intensity", what, fix, _ids(odd), mend)]
    if divisors and divisors[0] > 1:
        what = f"Intensity is stored as 0..{divisors[0]:.0f} and is divided by that number when read."
        return [Finding("info", "intensity", what, "Nothing to do. Other programs may need 0..1.")]
    return []


def _ids(scans: Sequence[ScanFacts]) -> tuple[str, ...]:
    return tuple(scan.frame_id for scan in scans)
