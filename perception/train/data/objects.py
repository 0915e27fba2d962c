"""Objects cut out of training frames and pasted into others: ground-truth sampling.

Source: SECOND (Yan et al., Sensors 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perception.train.data.frames import TrainingFrame
from perception.types import FloatArray


@dataclass(frozen=True, eq=False)
class ObjectSample:
    """One object with its points.

    Attributes:
        label: class index.
        box: (7,) float32 at the original position.
        points: (P, C) float32 at the original position, with the trail of older ones.
        velocity: (2,) float32 m/s; NaN if unknown.
    """

    label: int
    box: FloatArray
    points: FloatArray
    velocity: FloatArray = field(default_factory=lambda: np.full(2, np.nan, np.float32))


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
                sample = ObjectSample(int(label), box.copy(), frame.points[inside].copy(), velocity.copy())
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
    radius = float(np.hypot(box[3], box[4])) / 2 * 1.001 + 0.001
    # |p x c| <= r |p|: the distance of the centre from the ray's line.
    hits = (x * box[1] - y * box[0]) ** 2 <= np.float32(radius**2) * (x * x + y * y)
    if float(np.hypot(box[0], box[1])) > radius:
        hits &= x * box[0] + y * box[1] > 0
    return np.flatnonzero(hits)


def local_positions(points: FloatArray, box: FloatArray) -> FloatArray:
    """Return (N, 3) positions of (N, 4) points in the frame of a (7,) box."""
    delta = points[:, :3] - box[:3]
    cosine, sine = np.cos(box[6]), np.sin(box[6])
    return np.stack(
        [cosine * delta[:, 0] + sine * delta[:, 1], cosine * delta[:, 1] - sine * delta[:, 0], delta[:, 2]],
        axis=1,
    )


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
