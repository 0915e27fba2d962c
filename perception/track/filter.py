"""Kalman filters of constant velocity for all tracks at once.

Noise is the same along all axes, so the covariance of a track is one 2x2 for every axis, which no turn of the
map changes, and the filter is a few products of columns (Bar-Shalom, Li and Kirubarajan, "Estimation with
Applications to Tracking and Navigation", 2001, section 6.2: white noise acceleration).
"""

from __future__ import annotations

import numpy as np

from perception.track.state import (
    BOX,
    CENTRE,
    SIZE,
    SIZES,
    SPREAD,
    VELOCITY,
    VOTES,
    YAW,
    YAW_SPREAD,
    Float64Array,
)

_MOST_VOTES = 10.0


def wrapped(angle_rad: Float64Array) -> Float64Array:
    """Angles in [-pi, pi)."""
    return (angle_rad + np.pi) % (2 * np.pi) - np.pi


def predict(numbers: Float64Array, seconds: float, density: Float64Array, turning: Float64Array) -> None:
    """Move tracks on, in place.

    Args:
        numbers: (N, 18) of a :class:`~perception.track.state.TrackState`.
        seconds: to move them on.
        density: (N,) spectral density of the acceleration, m^2/s^3.
        turning: (N,) variance of the heading that a second adds, rad^2.
    """
    numbers[:, CENTRE] += seconds * numbers[:, VELOCITY]
    place, both, speed = numbers[:, SPREAD].T
    added = density * seconds
    numbers[:, SPREAD.start] = place + seconds * (2 * both + seconds * speed) + added * (seconds**2 / 3)
    numbers[:, SPREAD.start + 1] = both + seconds * speed + added * (seconds / 2)
    numbers[:, SPREAD.start + 2] = speed + added
    numbers[:, YAW_SPREAD] += turning * seconds


def correct(
    numbers: Float64Array,
    boxes: Float64Array,
    noise: Float64Array,
    yaw_noise: Float64Array,
    memory: Float64Array,
) -> Float64Array:
    """Tracks after their boxes.

    Args:
        numbers: (N, 18) as predicted.
        boxes: (N, 7) in the map.
        noise: (N,) variance of a centre along an axis, m^2.
        yaw_noise: (N,) variance of a heading, rad^2.
        memory: (N,) most boxes that a size is averaged over.

    Returns:
        (N, 18).
    """
    found = numbers.copy()
    offset = boxes[:, :3] - numbers[:, CENTRE]
    place, both, speed = numbers[:, SPREAD].T
    total = place + noise
    gain, speed_gain = place / total, both / total
    found[:, CENTRE] += gain[:, None] * offset
    found[:, VELOCITY] += speed_gain[:, None] * offset
    found[:, SPREAD] = np.stack([gain * noise, speed_gain * noise, speed - speed_gain * both], axis=1)
    count = np.minimum(numbers[:, SIZES] + 1.0, memory)
    found[:, SIZES] = count
    found[:, SIZE] += (boxes[:, 3:6] - numbers[:, SIZE]) / np.maximum(count, 1.0)[:, None]
    _turn(found, boxes[:, BOX.stop - 1], yaw_noise)
    return found


def _turn(numbers: Float64Array, yaw: Float64Array, noise: Float64Array) -> None:
    """Headings. Detectors take front for back now and then: the votes of all boxes decide which it is."""
    off = wrapped(yaw - numbers[:, YAW])
    back = np.abs(off) > np.pi / 2
    off = np.where(back, off - np.copysign(np.pi, off), off)
    votes = numbers[:, VOTES] + np.where(back, -1.0, 1.0)
    gain = numbers[:, YAW_SPREAD] / (numbers[:, YAW_SPREAD] + noise)
    turned = votes < 0
    numbers[:, YAW] = wrapped(numbers[:, YAW] + gain * off + np.where(turned, np.pi, 0.0))
    numbers[:, YAW_SPREAD] *= 1.0 - gain
    numbers[:, VOTES] = np.where(turned, 1.0, np.minimum(votes, _MOST_VOTES))
