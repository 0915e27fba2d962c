"""Smoothing of whole tracks: each state from all boxes before and after it (Rauch, Tung and Striebel, 1965).

All tracks advance together: step j of every track that is long enough. Model and noise are those of
:mod:`perception.track.filter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perception.track.filter import wrapped
from perception.track.state import BoolArray, Float64Array, Int64Array


class Noise(NamedTuple):
    """(K,) variances of centre, heading and initial speed, and their growth per second, for each track."""

    place: Float64Array
    yaw: Float64Array
    speed: Float64Array
    density: Float64Array
    turning: Float64Array

    def take(self, which: Int64Array) -> Noise:
        """Return the rows of some tracks."""
        return Noise(*(column[which] for column in self))


@dataclass(frozen=True, eq=False)
class Spans:
    """Tracks from their first box to their last, with one row per frame and one track after the other.

    Attributes:
        start: (K,) first row of each.
        length: (K,) rows of each, at least 1.
        seconds: (R,) since the row before; 0 in first rows.
        seen: (R,) True if the row has a box; first rows always do.
        centre: (R, 3) of the boxes.
        yaw: (R,) of the boxes.
    """

    start: Int64Array
    length: Int64Array
    seconds: Float64Array
    seen: BoolArray
    centre: Float64Array
    yaw: Float64Array


class SmoothedStates(NamedTuple):
    """Centres (R, 3), velocities (R, 3), covariances (R, 3) and headings (R,) of all rows."""

    centre: Float64Array
    velocity: Float64Array
    spread: Float64Array
    yaw: Float64Array


def smooth(spans: Spans, noise: Noise) -> SmoothedStates:
    """Smooth all rows of all tracks."""
    order = np.argsort(-spans.length, kind="stable")
    start, length, noise = spans.start[order], spans.length[order], noise.take(order)
    rows = len(spans.seen)
    centre, velocity, spread = np.zeros((rows, 3)), np.zeros((rows, 3)), np.zeros((rows, 3))
    ahead, ahead_spread = np.zeros((rows, 3)), np.zeros((rows, 3))
    yaw = aligned(spans, start, length)
    turn, turn_spread, turn_ahead = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    active = np.searchsorted(-length, -np.arange(int(length.max(initial=0))), side="left")
    for step, count in enumerate(active.tolist()):
        row, own = start[:count] + step, Noise(*(column[:count] for column in noise))
        if step == 0:
            centre[row], turn[row], turn_spread[row] = spans.centre[row], yaw[row], own.yaw
            spread[row, 0], spread[row, 2] = own.place, own.speed
            continue
        seconds, last = spans.seconds[row], row - 1
        place, both, speed = spread[last].T
        added = own.density * seconds
        ahead[row] = centre[last] + seconds[:, None] * velocity[last]
        place = place + seconds * (2 * both + seconds * speed) + added * seconds**2 / 3
        both, speed = both + seconds * speed + added * seconds / 2, speed + added
        ahead_spread[row] = np.stack([place, both, speed], axis=1)
        turn_ahead[row] = turn_spread[last] + own.turning * seconds
        seen = spans.seen[row]
        gain = np.where(seen, place / (place + own.place), 0.0)
        speed_gain = np.where(seen, both / (place + own.place), 0.0)
        offset = spans.centre[row] - ahead[row]
        centre[row] = ahead[row] + gain[:, None] * offset
        velocity[row] = velocity[last] + speed_gain[:, None] * offset
        left = 1.0 - gain
        spread[row] = np.stack([place * left, both * left, speed - speed_gain * both], axis=1)
        turn_gain = np.where(seen, turn_ahead[row] / (turn_ahead[row] + own.yaw), 0.0)
        turn[row] = turn[last] + turn_gain * (yaw[row] - turn[last])
        turn_spread[row] = turn_ahead[row] * (1.0 - turn_gain)
    for step in range(len(active) - 2, -1, -1):
        row = start[: active[step + 1]] + step
        _backward(row, spans.seconds[row + 1], centre, velocity, spread, ahead, ahead_spread)
        share = turn_spread[row] / turn_ahead[row + 1]
        turn[row] += share * (turn[row + 1] - turn[row])
    return SmoothedStates(centre, velocity, spread, wrapped(turn))


def _backward(
    row: Int64Array,
    seconds: Float64Array,
    centre: Float64Array,
    velocity: Float64Array,
    spread: Float64Array,
    ahead: Float64Array,
    ahead_spread: Float64Array,
) -> None:
    """Update rows from their successors, in place. The expected speed of a successor is the speed here."""
    place, both, speed = spread[row].T
    next_place, next_both, next_speed = ahead_spread[row + 1].T
    whole = next_place * next_speed - next_both**2
    first, second = place + seconds * both, both + seconds * speed
    gain_00 = (first * next_speed - both * next_both) / whole
    gain_01 = (both * next_place - first * next_both) / whole
    gain_10 = (second * next_speed - speed * next_both) / whole
    gain_11 = (speed * next_place - second * next_both) / whole
    moved, faster = centre[row + 1] - ahead[row + 1], velocity[row + 1] - velocity[row]
    centre[row] += gain_00[:, None] * moved + gain_01[:, None] * faster
    velocity[row] += gain_10[:, None] * moved + gain_11[:, None] * faster
    change = spread[row + 1] - ahead_spread[row + 1]
    spread[row] += np.stack(
        [
            gain_00**2 * change[:, 0] + 2 * gain_00 * gain_01 * change[:, 1] + gain_01**2 * change[:, 2],
            gain_00 * gain_10 * change[:, 0]
            + (gain_00 * gain_11 + gain_01 * gain_10) * change[:, 1]
            + gain_01 * gain_11 * change[:, 2],
            gain_10**2 * change[:, 0] + 2 * gain_10 * gain_11 * change[:, 1] + gain_11**2 * change[:, 2],
        ],
        axis=1,
    )


def aligned(spans: Spans, start: Int64Array, length: Int64Array) -> Float64Array:
    """Return (R,) continuous headings: front and back by majority of the track, without jumps of a full
    turn.
    """
    yaw = spans.yaw.copy()
    last = yaw[start].copy()
    votes = np.ones(len(start))
    for step in range(1, int(length.max(initial=0))):
        count = int(np.searchsorted(-length, -step, side="left"))
        row = start[:count] + step
        seen = spans.seen[row]
        off = wrapped(yaw[row] - last[:count])
        back = np.abs(off) > np.pi / 2
        off = np.where(back, off - np.copysign(np.pi, off), off)
        last[:count] += np.where(seen, off, 0.0)
        votes[:count] += np.where(seen, np.where(back, -1.0, 1.0), 0.0)
        yaw[row] = last[:count]
    turned = np.zeros(len(yaw))
    turned[start] = np.where(votes < 0, np.pi, 0.0)
    owner = np.zeros(len(yaw), np.int64)
    owner[start] = np.arange(len(start))
    by_start = np.sort(start)
    first = by_start[np.searchsorted(by_start, np.arange(len(yaw)), side="right") - 1] if len(yaw) else owner
    return np.asarray(yaw + turned[first])
