"""Static and moving phases of a track."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.types import SLOWEST_M_S

#: Distance from which a short track counts as moving.
SHORTEST_M = 0.5
#: A short track moves if it drifts by this many standard errors; errors of consecutive boxes are correlated.
DRIFT_SIGMAS = 4.0
#: Share of the boxes of a static object that are at its place.
MOST = 0.8


class Phase(NamedTuple):
    """Phase of a track.

    Attributes:
        stood: True if static, False if moving.
        first, last: rows of its samples, both included; a motion includes the ends of the stays around
            it.
    """

    stood: bool
    first: int
    last: int


def phases_of(
    time_ns: NDArray[np.int64],
    place: NDArray[np.float64],
    *,
    stay_m: float,
    stay_s: float,
) -> list[Phase]:
    """Split a track into stays and motions.

    A track is one stay if most of it is within ``stay_m`` of its centre and it does not drift. Otherwise a
    stay is a part of at least ``stay_s`` with this property. The parts in between are motions if they lead
    farther than ``stay_m``; otherwise the box was wrong for a while, and the stays are joined.

    Args:
        time_ns: (n,) int64, increasing, n at least 1.
        place: (n, 2) metres in the map.
        stay_m: noise of the box of a static object.
        stay_s: minimum duration of a stay.
    """
    count, took_s = len(time_ns), float(time_ns[-1] - time_ns[0]) / 1e9
    shortest_m = max(SHORTEST_M, min(max(SLOWEST_M_S * took_s, DRIFT_SIGMAS * _drift_error(place)), stay_m))
    still = _still(place, stay_m) and _drift(place) <= shortest_m
    if still or took_s < stay_s:
        return [Phase(still, 0, count - 1)]
    stays: list[tuple[int, int]] = []
    row = 0
    while row < count:
        last = _reach(place, row, stay_m)
        took_s = float(time_ns[last] - time_ns[row]) / 1e9
        if took_s >= stay_s and _drift(place[row : last + 1]) <= SLOWEST_M_S * took_s:
            if stays and _near(place, stays[-1], (row, last), stay_m):
                stays[-1] = (stays[-1][0], last)
            else:
                stays.append((row, last))
            row = last + 1
        else:
            row += 1
    if not stays:
        return [Phase(False, 0, count - 1)]
    found = []
    if stays[0][0] > 0:
        found.append(Phase(False, 0, stays[0][0]))
    for number, (first, last) in enumerate(stays):
        found.append(Phase(True, first, last))
        end = stays[number + 1][0] if number + 1 < len(stays) else count - 1
        if end > last:
            found.append(Phase(False, last, end))
    return _without_wobbles(found, place, stay_m)


def _reach(place: NDArray[np.float64], first: int, stay_m: float) -> int:
    """Return the last row up to which everything from ``first`` is near its centre."""
    total, last = place[first].copy(), first
    for row in range(first + 1, len(place)):
        middle = total / (row - first)
        if float(np.hypot(*(place[row] - middle))) > stay_m:
            break
        total += place[row]
        last = row
    return last


def _drift(place: NDArray[np.float64]) -> float:
    """Return the distance between the first and last quarter."""
    few = max(1, len(place) // 4)
    return float(np.hypot(*(place[-few:].mean(axis=0) - place[:few].mean(axis=0))))


def _drift_error(place: NDArray[np.float64]) -> float:
    """Return the standard error of the drift, from second differences, which are 0 in steady motion."""
    if len(place) < 4:
        return 0.0
    bends = np.diff(place, n=2, axis=0)
    # The second difference of independent errors has six times their variance.
    variance = float((bends**2).sum(axis=1).mean()) / 6.0
    return float(np.sqrt(2.0 * variance / max(1, len(place) // 4)))


def _still(place: NDArray[np.float64], stay_m: float) -> bool:
    """True if most of it is at one place; a few boxes may be wrong."""
    away = place - np.median(place, axis=0)
    return bool((np.hypot(away[:, 0], away[:, 1]) <= stay_m).mean() >= MOST)


def _near(place: NDArray[np.float64], one: tuple[int, int], other: tuple[int, int], stay_m: float) -> bool:
    """True if two stays are at one place, and the part between them stays within twice the distance."""
    middle = np.median(place[one[0] : one[1] + 1], axis=0)
    apart = place[one[0] : other[1] + 1] - middle
    distance = np.hypot(apart[:, 0], apart[:, 1])
    return bool(np.median(distance[other[0] - one[0] :]) <= stay_m and (distance <= 2.0 * stay_m).all())


def _without_wobbles(found: list[Phase], place: NDArray[np.float64], stay_m: float) -> list[Phase]:
    """Join motions at the ends that lead nowhere with the neighbouring stay."""
    leads = [
        phase.stood or float(np.hypot(*(place[phase.last] - place[phase.first]))) > stay_m for phase in found
    ]
    if len(found) > 1 and not leads[-1]:
        found[-2:] = [found[-2]._replace(last=found[-1].last)]
    if len(found) > 1 and not leads[0]:
        found[:2] = [found[1]._replace(first=found[0].first)]
    return found
