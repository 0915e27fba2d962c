"""Simulated sensor changes: fewer beams, other heights, tilts, ranges and intensities.

Each change is off by default and then draws no random number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perception.config import AugmentConfig
from perception.train.data.frames import ANY_SENSOR, IGNORED, TrainingFrame
from perception.train.data.objects import Bearings, points_in_box
from perception.types import FloatArray

#: Sensors with fewer beams keep all: too little would be left.
_LEAST_BEAMS = 16


def change_sensor(frame: TrainingFrame, config: AugmentConfig, random: np.random.Generator) -> TrainingFrame:
    """Apply all configured sensor changes, as seen from the frame's origin."""
    choices = [every for every in (2, 4) if frame.sensor.beams >= every * _LEAST_BEAMS]
    if config.drop_beams and random.random() < config.drop_beams and choices:
        every = int(random.choice(choices))
        gap_rad = config.beam_gap_rad * ANY_SENSOR.beams / frame.sensor.beams
        thinned = keep_beams(frame, every, int(random.integers(every)), gap_rad)
        frame = ignore_unseen(thinned, frame.points)
    if config.sensor_height_m:
        shift = np.float32(random.uniform(-config.sensor_height_m, config.sensor_height_m))
        frame = raise_sensor(frame, float(shift))
    if config.tilt_rad:
        roll, pitch = random.uniform(-config.tilt_rad, config.tilt_rad, 2)
        frame = tilt_sensor(frame, float(roll), float(pitch))
    if config.range_noise_m:
        frame = jitter_ranges(frame, config.range_noise_m, random)
    if config.intensity_scale or config.drop_intensity or config.intensity_factor > 1:
        frame = change_intensity(frame, config, random)
    return frame


def keep_beams(frame: TrainingFrame, every: int, first: int, gap_rad: float) -> TrainingFrame:
    """Keep the points of every n-th beam, identified by elevation.

    Args:
        frame: as seen by the sensor at the origin.
        every: 2 keeps half of the beams, 4 a quarter.
        first: index of the lowest kept beam.
        gap_rad: angle between two beams; for unevenly spaced beams the selection is approximate.
    """
    points = frame.points
    elevation = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
    ring = np.floor(elevation.astype(np.float64) / gap_rad).astype(np.int64)
    return replace(frame, points=points[ring % every == first])


def ignore_unseen(frame: TrainingFrame, before: FloatArray) -> TrainingFrame:
    """Ignore the objects that had points before, and have none now.

    Args:
        frame: after a change.
        before: (N, 4) points before it.
    """
    labels, earlier, later = frame.labels.copy(), Bearings(before), Bearings(frame.points)
    for row, box in enumerate(frame.boxes):
        had, has = (
            points_in_box(points[rows], box).any()
            for points, rows in ((before, earlier.rows(box)), (frame.points, later.rows(box)))
        )
        if had and not has:
            labels[row] = IGNORED
    return replace(frame, labels=labels)


def raise_sensor(frame: TrainingFrame, height_m: float) -> TrainingFrame:
    """Lower everything by the height, as if measured from higher up; occlusion stays unchanged."""
    points, boxes = frame.points.copy(), frame.boxes.copy()
    points[:, 2] -= np.float32(height_m)
    boxes[:, 2] -= np.float32(height_m)
    return replace(frame, points=points, boxes=boxes)


def tilt_sensor(frame: TrainingFrame, roll_rad: float, pitch_rad: float) -> TrainingFrame:
    """Rotate points and box centres about the x axis, then about the y axis; boxes stay upright."""
    (sin_roll, cos_roll), (sin_pitch, cos_pitch) = (
        (np.sin(angle), np.cos(angle)) for angle in (roll_rad, pitch_rad)
    )
    roll = np.array([[1, 0, 0], [0, cos_roll, -sin_roll], [0, sin_roll, cos_roll]])
    pitch = np.array([[cos_pitch, 0, sin_pitch], [0, 1, 0], [-sin_pitch, 0, cos_pitch]])
    turn = (pitch @ roll).astype(np.float32)
    points, boxes = frame.points.copy(), frame.boxes.copy()
    points[:, :3] = points[:, :3] @ turn.T
    boxes[:, :3] = boxes[:, :3] @ turn.T
    return replace(frame, points=points, boxes=boxes)


def jitter_ranges(frame: TrainingFrame, deviation_m: float, random: np.random.Generator) -> TrainingFrame:
    """Move each point along its ray by a normally distributed distance, never behind the sensor."""
    points = frame.points.copy()
    range_m = np.maximum(np.linalg.norm(points[:, :3], axis=1), 1e-3)
    moved = np.maximum(range_m + deviation_m * random.standard_normal(len(points)), 0.0)
    points[:, :3] *= (moved / range_m)[:, None].astype(np.float32)
    return replace(frame, points=points)


def change_intensity(
    frame: TrainingFrame, config: AugmentConfig, random: np.random.Generator
) -> TrainingFrame:
    """Scale all intensities by one factor, or set them to zero, clipped to [0, 1]."""
    points = frame.points.copy()
    factor = random.uniform(1 - config.intensity_scale, 1 + config.intensity_scale)
    if config.intensity_factor > 1:
        factor *= config.intensity_factor ** random.uniform(-1, 1)
    if config.drop_intensity and random.random() < config.drop_intensity:
        factor = 0.0
    points[:, 3] = np.clip(points[:, 3] * np.float32(factor), 0.0, 1.0)
    return replace(frame, points=points)
