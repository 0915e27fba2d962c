"""Objects cut out of training frames and pasted into others: ground-truth sampling.

Source: SECOND (Yan et al., Sensors 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perception.train.data.frames import ANY_SENSOR, SensorKind, TrainingFrame
from perception.types import FloatArray


@dataclass(frozen=True, eq=False)
class ObjectSample:
    """One object with its points.

    Attributes:
        label: class index.
        box: (7,) float32 at the original position.
        points: (P, C) float32 at the original position, with the trail of older ones.
        velocity: (2,) float32 m/s; NaN if unknown.
        sensor: of the frame.
    """

    label: int
    box: FloatArray
    points: FloatArray
    velocity: FloatArray = field(default_factory=lambda: np.full(2, np.nan, np.float32))
    sensor: SensorKind = ANY_SENSOR


def collect_objects(
    frames: Sequence[TrainingFrame], *, minimum_points: int = 5
) -> dict[int, list[ObjectSample]]:
    """Collect objects with at least ``minimum_points`` points from all frames, by class index."""
    found: dict[int, list[ObjectSample]] = {}
    for frame in frames:
        for box, label, velocity in zip(frame.boxes, frame.labels, frame.velocities, strict=True):
            if label < 0:
                continue
            inside = points_of_object(frame.points, box, velocity)
            if int(inside.sum()) >= minimum_points:
                points = frame.points[inside].copy()
                sample = ObjectSample(int(label), box.copy(), points, velocity.copy(), frame.sensor)
                found.setdefault(int(label), []).append(sample)
    return found


def object_bank(
    frames: Sequence[TrainingFrame], extra: Sequence[TrainingFrame] = (), *, extra_below: int = 0
) -> dict[int, list[ObjectSample]]:
    """Return the objects that a training pastes, by class index.

    Args:
        frames: main frames.
        extra: further training frames.
        extra_below: classes with fewer objects than this in ``frames`` also use those of ``extra``.
    """
    bank = collect_objects(frames)
    for label, samples in collect_objects(extra).items() if extra_below else ():
        if len(bank.get(label, ())) < extra_below:
            bank.setdefault(label, []).extend(samples)
    return bank


class Bearings:
    """Points sorted by their bearing from the origin, to find those of a box without reading all.

    Args:
        points: (N, 4) float32.
    """

    #: Bearings are rounded to so many steps of a turn.
    _STEPS = 4096

    def __init__(self, points: FloatArray) -> None:
        turn = np.arctan2(points[:, 1], points[:, 0]) * np.float32(0.5 / np.pi) + np.float32(0.5)
        steps = np.minimum(turn * np.float32(self._STEPS), self._STEPS - 1).astype(np.uint16)
        self._order = np.argsort(steps, kind="stable")
        counts = np.bincount(steps, minlength=self._STEPS)
        self._starts = [0, *np.cumsum(counts).tolist()]

    def rows(self, box: FloatArray, *, margin_m: float = 0.0) -> np.ndarray:
        """Return rows of points, in any order: among them all that lie on or behind the circle around a box.

        Args:
            box: (7,), see ``perception.types``.
            margin_m: added to the circle's radius.
        """
        radius, distance = _radius(box) + margin_m, math.hypot(box[0], box[1])
        if distance <= radius:
            return self._order
        middle = (math.atan2(box[1], box[0]) / (2 * math.pi) + 0.5) * self._STEPS
        half = math.asin(radius / distance) / (2 * math.pi) * self._STEPS
        # A hundredth of a step covers rounding.
        low, high = math.floor(middle - half - 0.01), math.floor(middle + half + 0.01)
        whole = self._between(max(low, 0), min(high, self._STEPS - 1))
        if low >= 0 and high < self._STEPS:
            return whole
        # The circle touches the bearing where the turn begins and ends.
        rest = (low + self._STEPS, self._STEPS - 1) if low < 0 else (0, high - self._STEPS)
        return np.concatenate([whole, self._between(*rest)])

    def _between(self, first: int, last: int) -> np.ndarray:
        return self._order[self._starts[first] : self._starts[last + 1]]


def _radius(box: FloatArray) -> float:
    return math.hypot(box[3], box[4]) / 2 * 1.001 + 0.001


def shadowed(points: FloatArray, box: FloatArray) -> np.ndarray:
    """Return an (N,) mask of points behind a box as seen from the origin; points inside it are not masked."""
    origin = local_positions(np.zeros((1, 3), np.float32), box)
    half = box[3:6] / 2
    if (np.abs(origin) <= half).all():
        return np.zeros(len(points), dtype=bool)
    candidates = _ray_candidates(points, box)
    ray = (local_positions(points[candidates], box) - origin).T
    with np.errstate(divide="ignore", invalid="ignore"):  # A ray along a face divides 0 by 0.
        first, second = (-half - origin).T / ray, (half - origin).T / ray
    enters = np.fmax.reduce(np.minimum(first, second), axis=0)
    leaves = np.fmin.reduce(np.maximum(first, second), axis=0)
    mask = np.zeros(len(points), dtype=bool)
    mask[candidates] = (enters < leaves) & (enters > 0) & (leaves < 1)
    return mask


def _ray_candidates(points: FloatArray, box: FloatArray) -> np.ndarray:
    """Return rows of the points whose ray from the origin passes the circle around a box in bird's-eye
    view.
    """
    x, y = points[:, 0], points[:, 1]
    radius = _radius(box)
    # |p x c| <= r |p|: the distance of the centre from the ray's line.
    hits = (x * box[1] - y * box[0]) ** 2 <= np.float32(radius**2) * (x * x + y * y)
    if float(np.hypot(box[0], box[1])) > radius:
        hits &= x * box[0] + y * box[1] > 0
    return np.flatnonzero(hits)


def local_positions(points: FloatArray, box: FloatArray) -> FloatArray:
    """Return (N, 3) positions of (N, 4) points in the frame of a (7,) box."""
    delta = points[:, :3] - box[:3]
    cosine, sine = np.cos(box[6]), np.sin(box[6])
    x, y = delta[:, 0].copy(), delta[:, 1]
    delta[:, 0] = cosine * x + sine * y
    delta[:, 1] = cosine * y - sine * x
    return delta


def points_of_object(points: FloatArray, box: FloatArray, velocity: FloatArray) -> np.ndarray:
    """Return an (N,) mask of the points of an object, with those of past scans where it was then.

    Args:
        points: (N, C) with ages in the fifth column, if there is one.
        box: (7,) now.
        velocity: (2,) m/s; NaN: taken as 0.
    """
    if points.shape[1] == 4 or not np.isfinite(velocity).all():
        return points_in_box(points, box)
    brought = points[:, :3].copy()
    brought[:, :2] += points[:, 4:5] * velocity
    return points_in_box(brought, box)


def points_in_box(points: FloatArray, box: FloatArray, *, margin_m: float = 0.0) -> np.ndarray:
    """Return an (N,) mask of points inside one box, enlarged by a margin on every side."""
    radius = float(np.hypot(box[3], box[4])) / 2 + 2 * margin_m
    near = np.abs(points[:, 0] - box[0]) < radius
    near &= np.abs(points[:, 1] - box[1]) < radius
    mask = np.zeros(len(points), dtype=bool)
    candidates = np.flatnonzero(near)
    local = local_positions(points[candidates], box)
    inside = (np.abs(local) <= box[3:6] / 2 + margin_m).all(axis=1)
    mask[candidates[inside]] = True
    return mask
