"""Checks of labels: classes, sizes, headings, and positions in the scan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perception.doctor.check_classes import check_classes
from perception.doctor.label_facts import AXES_CHANGES, TURNS, Array, LabelFacts, better_turn
from perception.doctor.wording import CAMERA, LabelWords
from perception.scans.finding import Finding, Severity, with_frames

#: Plausible ranges of length, width and height in metres.
PLAUSIBLE_SIZES_M = {
    "Car": ((2.2, 6.5), (1.0, 2.6), (1.0, 2.6)),
    "Van": ((3.0, 8.0), (1.3, 2.9), (1.3, 3.6)),
    "Truck": ((3.5, 25.0), (1.5, 3.6), (1.7, 4.8)),
    "Pedestrian": ((0.2, 1.7), (0.2, 1.4), (0.8, 2.3)),
    "Person_sitting": ((0.3, 1.7), (0.2, 1.4), (0.7, 1.9)),
    "Cyclist": ((1.1, 2.6), (0.2, 1.3), (1.0, 2.4)),
    "Tram": ((8.0, 70.0), (1.8, 3.6), (2.5, 5.0)),
}
#: Ranges for other classes.
_ANY_SIZE_M = ((0.05, 80.0), (0.05, 80.0), (0.02, 40.0))
_USUAL_SIZE_M = 1.5
_SIZE_UNITS = {"centimetres": 0.01, "millimetres": 0.001, "feet": 0.3048, "inches": 0.0254}
_SIZE_NAMES = ("length", "width", "height")

_FAR_M = 2.0
_FLOATING_M = 0.5
#: For low objects: the same as a fraction of half their height.
_FLOATING_SHARE = 0.7
_FLOATING_ALONE_M = 1.0


def check_labels(
    frames: Sequence[LabelFacts],
    classes: Sequence[str],
    known: Sequence[str],
    *,
    judge_place: bool,
    words: LabelWords = CAMERA,
) -> list[Finding]:
    """Run all checks of labels; consequences of an error are not reported.

    Args:
        frames: measured frames, at least one.
        classes: classes to train or detect.
        known: classes of the data set's labels.
        judge_place: True also checks positions in the scans, which needs right units and axes.
        words: fixes for the label format.
    """
    findings = check_classes(frames, classes, known, words)
    values = _check_headings(frames, words) + _check_sizes(frames, words)
    repeated = tuple(frame.frame_id for frame in frames if frame.same_as_another)
    message = f"{len(repeated)} frames contain a box twice."
    findings += with_frames(Finding("warning", "duplicates", message, "Keep each box once.", repeated))
    if judge_place and not any(finding.severity == "error" for finding in values):
        values += _check_place(frames, words)
    return findings + values


def _check_headings(frames: Sequence[LabelFacts], words: LabelWords) -> list[Finding]:
    largest = max((float(np.abs(frame.rotations).max(initial=0)) for frame in frames), default=0)
    ids = tuple(frame.frame_id for frame in frames if (np.abs(frame.rotations) > 2 * np.pi + 0.01).any())
    message = f"Headings (rotation_y, yaw) reach {largest:.4g}, so they seem to be in degrees."
    return with_frames(Finding("error", "heading", message, words.degrees, ids))


def _check_sizes(frames: Sequence[LabelFacts], words: LabelWords) -> list[Finding]:
    empty = tuple(frame.frame_id for frame in frames if (frame.sizes <= 0).any())
    if empty:
        return [
            Finding(
                "error",
                "sizes",
                f"{len(empty)} frames contain a box with a zero or negative size.",
                words.order,
                empty,
            )
        ]
    types = [name for frame in frames for name in frame.types]
    ids = [frame.frame_id for frame in frames for _ in frame.types]
    if not types:
        return []
    sizes = np.concatenate([frame.sizes for frame in frames])
    limits = np.array([PLAUSIBLE_SIZES_M.get(name, _ANY_SIZE_M) for name in types])
    plausible = _plausible(sizes, limits)
    share = 1 - float(plausible.mean())
    if share == 0:
        return []
    odd = np.flatnonzero(~plausible).tolist()
    example = f"{types[odd[0]]} {' x '.join(f'{size:.2f}' for size in sizes[odd[0]])} m"
    part = f"{share:.0%}" if share >= 0.01 else f"{len(odd)}"
    message = f"{part} of the boxes have implausible sizes (length x width x height), such as {example}"
    cause, fix = _explain_sizes(sizes, limits, words) if share > 0.5 else ("", words.look)
    frames_concerned = tuple(dict.fromkeys(ids[index] for index in odd))
    severity: Severity = "error" if share > 0.5 else "warning"
    return [Finding(severity, "sizes", f"{message}{cause}.", fix, frames_concerned)]


def _plausible(sizes: Array, limits: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(((sizes >= limits[..., 0]) & (sizes <= limits[..., 1])).all(axis=1))


def _explain_sizes(sizes: Array, limits: Array, words: LabelWords) -> tuple[str, str]:
    """Explain implausible sizes by another unit or order, and return the fix."""
    fitting = [
        unit for unit, factor in _SIZE_UNITS.items() if _plausible(sizes * factor, limits).mean() > 0.8
    ]
    if fitting:
        usual = {unit: float(np.median(sizes)) * _SIZE_UNITS[unit] / _USUAL_SIZE_M for unit in fitting}
        unit = min(fitting, key=lambda name: abs(np.log(usual[name])))
        return (
            f", as if in {unit}",
            f"Multiply sizes (and locations) by {_SIZE_UNITS[unit]} to get metres.",
        )
    orders = list(itertools.permutations(range(3)))[1:]
    best = max(orders, key=lambda order: float(_plausible(sizes[:, order], limits).mean()))
    if _plausible(sizes[:, best], limits).mean() > 0.8:
        swapped = [_SIZE_NAMES[axis] for axis in range(3) if best[axis] != axis]
        return f", as if {', '.join(swapped[:-1])} and {swapped[-1]} were swapped", words.swapped
    return "", words.order


def _check_place(frames: Sequence[LabelFacts], words: LabelWords) -> list[Finding]:
    placed = [frame for frame in frames if len(frame.points)]
    if not placed:
        return []
    return (
        _check_axes_against_labels(placed)
        or _check_floating(placed, words)
        or _check_far(placed)
        + _check_empty(placed)
        + _check_turned(placed, words)
        + _check_floating_alone(placed, words)
    )


def _check_axes_against_labels(frames: Sequence[LabelFacts]) -> list[Finding]:
    """Check whether another unit or other axes of the scans would put points into the boxes."""
    supported = np.concatenate([frame.supported for frame in frames])
    tried = [frame.changed for frame in frames if frame.changed.shape[1]]
    if supported.mean() >= 0.5 or not tried:
        return []
    shares = np.concatenate(tried).mean(axis=0)
    best = int(shares.argmax())
    if shares[best] < max(0.6, 2 * float(supported.mean())):
        return []
    seem, change = list(AXES_CHANGES.items())[best]
    return [
        Finding(
            "error",
            "units" if change.axes is None else "axes",
            f"Only {supported.mean():.0%} of the boxes contain points of an object. The scans seem {seem}:"
            f" with this change it would be {shares[best]:.0%}.",
            f"{change.instruction}. If the scans are right, correct the labels or the calibration.",
            transform=change,
        )
    ]


def _check_floating(frames: Sequence[LabelFacts], words: LabelWords) -> list[Finding]:
    gaps = np.concatenate([frame.ground_gap_m for frame in frames])
    heights = np.concatenate([frame.heights_m for frame in frames])
    known = np.isfinite(gaps)
    if not known.any():
        return []
    gap, half = float(np.median(gaps[known])), float(np.median(heights[known])) / 2
    if abs(gap) < min(_FLOATING_M, _FLOATING_SHARE * half):
        return []
    where = f"float {gap:.2f} m above" if gap > 0 else f"are sunk {-gap:.2f} m below"
    is_half = abs(abs(gap) - half) < 0.3
    fix = words.other_frame
    if is_half:
        fix = words.floating_half if gap > 0 else words.sunk_half
    return [Finding("error", "floating", f"The boxes {where} the ground (median).", fix)]


def _check_far(frames: Sequence[LabelFacts]) -> list[Finding]:
    share, ids = _share(frames, [frame.distance_m > _FAR_M for frame in frames])
    return with_frames(
        Finding(
            "error" if share > 0.3 else "warning" if share > 0.05 else "info",
            "outside",
            f"{share:.1%} of the boxes are farther than {_FAR_M:.0f} m from every point of their scan.",
            "Check that label, calibration and scan belong to the same frame. Delete boxes that the sensor"
            " does not see.",
            ids,
        )
    )


def _check_empty(frames: Sequence[LabelFacts]) -> list[Finding]:
    near = [(frame.points == 0) & (frame.distance_m <= _FAR_M) for frame in frames]
    share, ids = _share(frames, near)
    return with_frames(
        Finding(
            "error" if share > 0.5 else "warning" if share > 0.15 else "info",
            "no points",
            f"{share:.1%} of the boxes contain no point, although the scan has points nearby.",
            "If there are many, check timestamps and calibration. Boxes without points cannot be learnt.",
            ids,
        )
    )


def _share(
    frames: Sequence[LabelFacts], concerned: Sequence[npt.NDArray[np.bool_]]
) -> tuple[float, tuple[str, ...]]:
    """Return the fraction of the marked boxes, and their frames."""
    ids = (frame.frame_id for frame, boxes in zip(frames, concerned, strict=True) if boxes.any())
    return float(np.concatenate(concerned).mean()), tuple(ids)


def _check_turned(frames: Sequence[LabelFacts], words: LabelWords) -> list[Finding]:
    """Check whether long boxes would contain many more points with another heading."""
    found = better_turn(frames)
    if found is None:
        return []
    best, times = found
    return [
        Finding(
            "error",
            "heading",
            f"{TURNS[best].message} ({times:.1f} times as many).",
            f"{words.turns[best]} Or swap length and width.",
        )
    ]


def _check_floating_alone(frames: Sequence[LabelFacts], words: LabelWords) -> list[Finding]:
    stray = [np.abs(np.nan_to_num(frame.ground_gap_m)) > _FLOATING_ALONE_M for frame in frames]
    share, ids = _share(frames, stray)
    if share <= 0.05:
        return []
    return [
        Finding(
            "warning",
            "floating",
            f"{share:.0%} of the boxes are over {_FLOATING_ALONE_M:.0f} m above or below the ground.",
            words.floating_alone,
            ids,
        )
    ]
