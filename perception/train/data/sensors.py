"""Simulated sensor changes: fewer beams, other heights, ranges and intensities.

Each change is off by default and then draws no random number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perception.config import AugmentConfig
from perception.train.data.frames import TrainingFrame


def change_sensor(frame: TrainingFrame, config: AugmentConfig, random: np.random.Generator) -> TrainingFrame:
    """Apply all configured sensor changes, as seen from the frame's origin."""
    if config.drop_beams and random.random() < config.drop_beams:
        every = int(random.choice([2, 4]))
        frame = keep_beams(frame, every, int(random.integers(every)), config.beam_gap_rad)
    if config.sensor_height_m:
        shift = np.float32(random.uniform(-config.sensor_height_m, config.sensor_height_m))
        frame = raise_sensor(frame, float(shift))
    if config.range_noise_m:
        frame = jitter_ranges(frame, config.range_noise_m, random)
    if config.intensity_scale or config.drop_intensity:
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


def raise_sensor(frame: TrainingFrame, height_m: float) -> TrainingFrame:
    """Lower everything by the height, as if measured from higher up; occlusion stays unchanged."""
    points, boxes = frame.points.copy(), frame.boxes.copy()
    points[:, 2] -= np.float32(height_m)
    boxes[:, 2] -= np.float32(height_m)
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
    if config.drop_intensity and random.random() < config.drop_intensity:
        factor = 0.0
    points[:, 3] = np.clip(points[:, 3] * np.float32(factor), 0.0, 1.0)
    return replace(frame, points=points)
