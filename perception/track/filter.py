"""Constant-velocity Kalman filters of all tracks at once.

Noise is the same along all axes. The covariance of a track is therefore one 2x2 matrix for every axis, which
rotations of the map leave unchanged. Source: Bar-Shalom, Li and Kirubarajan, "Estimation with Applications to
Tracking and Navigation" (2001), section 6.2: white noise acceleration.
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
    """Wrap angles to [-pi, pi)."""
    return (angle_rad + np.pi) % (2 * np.pi) - np.pi


def predict(numbers: Float64Array, seconds: float, density: Float64Array, turning: Float64Array) -> None:
    """Predict the state of tracks, in place.

    Args:
        numbers: (N, 18) of a :class:`~perception.track.state.TrackState`.
        seconds: prediction time.
        density: (N,) spectral density of the acceleration, m^2/s^3.
        turning: (N,) growth of the heading variance, rad^2/s.
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
    """Return the (N, 18) states after an update with their boxes.

    Args:
        numbers: (N, 18) predicted states.
        boxes: (N, 7) in the map.
        noise: (N,) variance of a centre along an axis, m^2.
        yaw_noise: (N,) variance of a heading, rad^2.
        memory: (N,) most boxes that a size is averaged over.
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


def correct_velocity(numbers: Float64Array, velocities: Float64Array, noise: Float64Array) -> Float64Array:
    """Return the (N, 18) states after an update with velocities that the detector estimates.

    Args:
        numbers: (N, 18) states.
        velocities: (N, 3) in the map, m/s; rows with NaN change nothing.
        noise: (N,) variance of a velocity along an axis, m^2/s^2.
    """
    found = numbers.copy()
    known = np.asarray(np.isfinite(velocities).all(axis=1))
    offset = np.where(known[:, None], velocities - numbers[:, VELOCITY], 0.0)
    place, both, speed = numbers[:, SPREAD].T
    total = speed + noise
    gain, speed_gain = both / total, speed / total
    found[:, CENTRE] += gain[:, None] * offset
    found[:, VELOCITY] += speed_gain[:, None] * offset
    spread = np.stack([place - gain * both, both - gain * speed, speed_gain * noise], axis=1)
    found[:, SPREAD] = np.where(known[:, None], spread, numbers[:, SPREAD])
    return found


def _turn(numbers: Float64Array, yaw: Float64Array, noise: Float64Array) -> None:
    """Update headings. Detectors sometimes swap front and back, so the votes of all boxes decide."""
    off = wrapped(yaw - numbers[:, YAW])
    back = np.abs(off) > np.pi / 2
    off = np.where(back, off - np.copysign(np.pi, off), off)
    votes = numbers[:, VOTES] + np.where(back, -1.0, 1.0)
    gain = numbers[:, YAW_SPREAD] / (numbers[:, YAW_SPREAD] + noise)
    turned = votes < 0
    numbers[:, YAW] = wrapped(numbers[:, YAW] + gain * off + np.where(turned, np.pi, 0.0))
    numbers[:, YAW_SPREAD] *= 1.0 - gain
    numbers[:, VOTES] = np.where(turned, 1.0, np.minimum(votes, _MOST_VOTES))
