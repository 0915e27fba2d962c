"""Identity switches: points where a track jumped to another object."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Noise of the boxes, maximum acceleration, and time over which the speed is measured.
_WANDERS_M, _GAINS_M_S2, _OVER_S = 1.0, 5.0, 1.0


def pieces_of(time_ns: NDArray[np.int64], place: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Split a track at jumps to another object.

    A jump is a step that is longer than the speed before and after it, a car's acceleration and the noise of
    the boxes allow.

    Args:
        time_ns: (n,) int64, increasing, n at least 1.
        place: (n, 2) metres in the map.

    Returns:
        First and last row of each piece, both included.
    """
    count = len(time_ns)
    seconds = (time_ns - time_ns[0]) / 1e9
    took_s = np.diff(seconds)
    steps = np.hypot(*np.diff(place, axis=0).T)
    cuts = [0]
    for step in np.flatnonzero(steps > _WANDERS_M + 0.5 * _GAINS_M_S2 * took_s**2).tolist():
        before, after = _speed(seconds, place, step, -1), _speed(seconds, place, step + 1, 1)
        known = [speed for speed in (before, after) if speed is not None]
        # With only two boxes there is no speed to compare, so do not split.
        if not known:
            continue
        reach = max(known) * took_s[step] + 0.5 * _GAINS_M_S2 * took_s[step] ** 2
        if steps[step] > reach + _WANDERS_M:
            cuts.append(step + 1)
    return list(zip(cuts, [cut - 1 for cut in cuts[1:]] + [count - 1], strict=True))


def _speed(seconds: NDArray[np.float64], place: NDArray[np.float64], row: int, way: int) -> float | None:
    """Return the speed around a row in metres per second, backwards or forwards; ``None`` at the end."""
    end = row
    while 0 <= end + way < len(seconds) and abs(seconds[end + way] - seconds[row]) <= _OVER_S:
        end += way
    if end == row:
        return None
    apart = abs(seconds[end] - seconds[row])
    return float(np.hypot(*(place[end] - place[row])) / max(apart, 1e-3))
