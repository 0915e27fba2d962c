"""Checks that need the scans alone: damage, units, axes, origin, ground, intensity."""

from __future__ import annotations

from collections.abc import Sequence

from perception.io.transform import ScanTransform
from perception.scans.facts import ScanFacts
from perception.scans.finding import Finding, with_frames
from perception.scans.geometry import check_geometry

#: Checks after whose errors the place of labels cannot be judged.
PLACEMENT_CHECKS = frozenset({"units", "axes", "origin"})

FEW_POINTS = 100


def check_scans(scans: Sequence[ScanFacts], *, sensor_height_m: float | None = None) -> list[Finding]:
    """All checks of scans; what follows from an error is not reported again.

    Args:
        scans: the measured scans.
        sensor_height_m: of the sensor above the ground, if it is known.
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
            "Record or export them again, or take them out of the data set.",
            _ids(empty),
        ),
        Finding(
            "warning",
            "empty",
            f"{len(few)} frames have fewer than {FEW_POINTS} points.",
            "Check that the whole scan was exported; take them out if the sensor was blocked.",
            _ids(few),
        ),
        Finding(
            "warning",
            "not finite",
            f"{len(bad)} frames hold NaN or infinite coordinates ({bad_share:.1%} of their points).",
            "They are dropped on detection; better leave out missing returns on export.",
            _ids(bad),
        ),
        Finding(
            "warning",
            "duplicates",
            f"In {len(zeros)} frames more than 1 % of the points lie exactly at (0, 0, 0).",
            "These are missing returns written as zeros: leave them out on export.",
            _ids(zeros),
        ),
        Finding(
            "warning",
            "duplicates",
            f"In {len(repeated)} frames points occur more than once ({repeated_share:.0%} of their points).",
            "Check whether a scan was written twice or clouds were joined; keep each point once.",
            _ids(repeated),
        ),
    )


def _check_intensity(scans: Sequence[ScanFacts]) -> list[Finding]:
    given = [(scan, scan.intensity) for scan in scans if scan.intensity is not None]
    unknown = [scan for scan, _ in given if scan.divisor is None]
    if unknown:
        what = f"Intensity is negative or above 65535 in {len(unknown)} frames: an unknown range."
        fix = (
            "Rescale it to 0..1, or leave it out. If it is not the intensity, say what the columns are"
            " (--columns x,y,z,intensity,ring)."
        )
        return [Finding("error", "intensity", what, fix, _ids(unknown))]
    dark = [scan for scan in scans if scan.intensity is None or scan.intensity[2] <= 0]
    if dark:
        what = f"Intensity is zero or missing in {len(dark)} of {len(scans)} frames."
        fix = "Export the sensor's intensity; without it use weights trained without intensity."
        return [Finding("warning", "intensity", what, fix, _ids(dark) if len(dark) < len(scans) else ())]
    constant = [scan for scan, spread in given if spread[0] == spread[2]]
    if constant:
        what = f"Intensity has one single value in {len(constant)} frames."
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
            f"Intensity has different ranges in different frames ({ranges}), which the reader cannot know"
            " apart from dark scenes."
        )
        fix, mend = "Export all frames with intensity in 0..1.", ScanTransform(intensity_scale=max(divisors))
        return [Finding("error", "intensity", what, fix, _ids(odd), mend)]
    if divisors and divisors[0] > 1:
        what = f"Intensity is stored as 0..{divisors[0]:.0f}; the reader divides it by that number."
        return [Finding("info", "intensity", what, "Nothing to do; other programs may want it in 0..1.")]
    return []


def _ids(scans: Sequence[ScanFacts]) -> tuple[str, ...]:
    return tuple(scan.frame_id for scan in scans)
