"""Boxes of a track near each of its rows in time."""

from __future__ import annotations

import numpy as np

from perception.track.smoothing import Spans
from perception.track.state import BoolArray, Float64Array, Int64Array

#: Boxes within this time are averaged.
_NEARBY_NS = 1_000_000_000


def mean_of_neighbours(
    known: Float64Array, spans: Spans, frame: Int64Array, times: Int64Array
) -> Float64Array:
    """Return (R, C) means of the boxes of each track within a second before and after.

    Rows of ``known`` without a box are zero. Without a box within a second, the nearest boxes count.
    """
    if not len(frame):
        return known
    rows = np.arange(len(frame))
    first = np.repeat(spans.start, spans.length)
    last = first + np.repeat(spans.length, spans.length) - 1
    low = rows - frame + np.searchsorted(times, times - _NEARBY_NS, side="left")[frame]
    high = rows - frame + np.searchsorted(times, times + _NEARBY_NS, side="right")[frame] - 1
    before, after = _neighbours(spans.seen)
    low = np.minimum(np.maximum(low, first), before)
    high = np.maximum(np.minimum(high, last), after)
    sums = np.concatenate([np.zeros((1, known.shape[1])), np.cumsum(known, axis=0)])
    count = np.concatenate([np.zeros(1), np.cumsum(spans.seen)])
    return np.asarray((sums[high + 1] - sums[low]) / (count[high + 1] - count[low])[:, None])


def time_since_seen(seen: BoolArray, time_ns: Int64Array) -> tuple[Float64Array, Float64Array]:
    """Return seconds since the box before, and from there to the box after; tracks start and end with
    boxes.
    """
    if not len(seen):
        return np.zeros(0), np.zeros(0)
    before, after = _neighbours(seen)
    since, gap = time_ns - time_ns[before], time_ns[after] - time_ns[before]
    return np.asarray(since * 1e-9), np.asarray(gap * 1e-9)


def frames_to_box(seen: BoolArray) -> Int64Array:
    """Return the (R,) number of rows to the nearest row with a box; 0 in rows with a box."""
    before, after = _neighbours(seen)
    rows = np.arange(len(seen))
    return np.asarray(np.minimum(rows - before, after - rows))


def _neighbours(seen: BoolArray) -> tuple[Int64Array, Int64Array]:
    """Return (R,) rows of the box before and the box after; a row with a box is its own neighbour."""
    rows = np.arange(len(seen))
    before = np.maximum.accumulate(np.where(seen, rows, 0))
    after = np.minimum.accumulate(np.where(seen, rows, len(rows) - 1)[::-1])[::-1]
    return before, after
