"""Where a track went over to another thing: nothing is beside itself from one moment to the next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: How far boxes of one thing wander, how fast it gains speed, and over what time its speed is taken.
_WANDERS_M, _GAINS_M_S2, _OVER_S = 1.0, 5.0, 1.0


def pieces_of(time_ns: NDArray[np.int64], place: NDArray[np.float64]) -> list[tuple[int, int]]:
    """A track in pieces, each of one thing.

    A step belongs to two things where it is longer than what the speed before or after it, and gaining speed
    as fast as a car does, would make of the time, by more than boxes wander.

    Args:
        time_ns: (n,) int64, rising, n at least 1.
        place: (n, 2) metres in the map.

    Returns:
        First and last row of each, both included.
    """
    count = len(time_ns)
    seconds = (time_ns - time_ns[0]) / 1e9
    took_s = np.diff(seconds)
    steps = np.hypot(*np.diff(place, axis=0).T)
    cuts = [0]
    for step in np.flatnonzero(steps > _WANDERS_M + 0.5 * _GAINS_M_S2 * took_s**2).tolist():
        before, after = _speed(seconds, place, step, -1), _speed(seconds, place, step + 1, 1)
        known = [speed for speed in (before, after) if speed is not None]
        # What neither side says is left as it is: there are two boxes and no more.
        if not known:
            continue
        reach = max(known) * took_s[step] + 0.5 * _GAINS_M_S2 * took_s[step] ** 2
        if steps[step] > reach + _WANDERS_M:
            cuts.append(step + 1)
    return list(zip(cuts, [cut - 1 for cut in cuts[1:]] + [count - 1], strict=True))


def _speed(seconds: NDArray[np.float64], place: NDArray[np.float64], row: int, way: int) -> float | None:
    """Metres a second around a row, from it backwards or on; ``None`` where it is the last."""
    end = row
    while 0 <= end + way < len(seconds) and abs(seconds[end + way] - seconds[row]) <= _OVER_S:
        end += way
    if end == row:
        return None
    apart = abs(seconds[end] - seconds[row])
    return float(np.hypot(*(place[end] - place[row])) / max(apart, 1e-3))
