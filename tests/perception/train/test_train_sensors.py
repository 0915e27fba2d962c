"""Frames as another sensor would have given them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from perception.config import AugmentConfig
from perception.errors import ConfigError
from perception.train.data.frames import IGNORED, SensorKind, TrainingFrame
from perception.train.data.objects import local_positions, points_in_box
from perception.train.data.sensors import (
    change_intensity,
    change_sensor,
    ignore_unseen,
    jitter_ranges,
    keep_beams,
    raise_sensor,
    tilt_sensor,
)

Street = Callable[[int], TrainingFrame]


def turn_of(beams: int, gap_rad: float) -> TrainingFrame:
    """A turn of evenly spaced beams around the horizon; the intensity is the number of the beam."""
    rows, columns = np.meshgrid(
        np.arange(beams), np.linspace(0, 2 * np.pi, 90, endpoint=False), indexing="ij"
    )
    elevation = (rows.ravel() - beams // 2 + 0.5) * gap_rad
    level = 20 * np.cos(elevation)
    azimuth = columns.ravel()
    points = np.stack(
        [level * np.cos(azimuth), level * np.sin(azimuth), 20 * np.sin(elevation), rows.ravel() / 100], axis=1
    )
    nothing = np.zeros((0, 7), np.float32), np.zeros(0, np.int64)
    return TrainingFrame("turn", points.astype(np.float32), *nothing)


@pytest.mark.parametrize(("beams", "every", "left"), [(64, 2, 32), (64, 4, 16), (32, 2, 16)])
def test_whole_beams_go(beams: int, every: int, left: int) -> None:
    frame = turn_of(beams, 0.007)
    found = [keep_beams(frame, every, first, 0.007).points for first in range(every)]
    rings = [np.unique(np.round(points[:, 3] * 100)) for points in found]
    assert all(len(ring) == left for ring in rings)
    assert sorted(np.concatenate(rings)) == list(range(beams))
    assert all(len(points) == left * 90 for points in found)


def test_a_higher_sensor_sees_everything_lower(street: Street) -> None:
    frame = street(0)
    raised = raise_sensor(frame, 0.75)
    np.testing.assert_allclose(frame.points[:, 2] - raised.points[:, 2], 0.75, atol=1e-6)
    np.testing.assert_allclose(frame.boxes[:, 2] - raised.boxes[:, 2], 0.75, atol=1e-6)
    np.testing.assert_array_equal(raised.boxes[:, 3:], frame.boxes[:, 3:])


def test_objects_that_lose_all_points_are_ignored(street: Street) -> None:
    frame = street(0)
    row = int(np.flatnonzero(frame.labels >= 0)[0])
    inside = points_in_box(frame.points, frame.boxes[row])
    assert inside.any()
    emptied = ignore_unseen(replace(frame, points=frame.points[~inside]), frame.points)
    expected = frame.labels.copy()
    expected[row] = IGNORED
    np.testing.assert_array_equal(emptied.labels, expected)
    one_left = np.flatnonzero(inside)[0]
    kept = ~inside | (np.arange(len(inside)) == one_left)
    thinned = ignore_unseen(replace(frame, points=frame.points[kept]), frame.points)
    np.testing.assert_array_equal(thinned.labels, frame.labels)


@pytest.mark.parametrize(("beams", "counts"), [(16, {16}), (32, {16}), (64, {32, 16}), (128, {64, 32})])
def test_sensors_keep_at_least_16_beams(beams: int, counts: set[int]) -> None:
    gap_rad = AugmentConfig().beam_gap_rad * 64 / beams
    frame = replace(turn_of(beams, gap_rad), sensor=SensorKind("of this size", beams))
    config = AugmentConfig(drop_beams=1.0)
    found = {
        len(np.unique(np.round(change_sensor(frame, config, np.random.default_rng(seed)).points[:, 3] * 100)))
        for seed in range(12)
    }
    assert found == counts


def test_a_tilt_moves_points_with_their_boxes(street: Street) -> None:
    frame = street(0)
    tilted = tilt_sensor(frame, 0.02, -0.03)
    before, after = (np.linalg.norm(part.points[:, :3], axis=1) for part in (frame, tilted))
    np.testing.assert_allclose(after, before, rtol=1e-5)
    # Ahead, the ground rises with a negative pitch; to the left, with a positive roll.
    where = np.array([[40, 0, 0, 0], [0, 40, 0, 0]], np.float32)
    moved = tilt_sensor(replace(frame, points=where), 0.02, -0.03).points
    np.testing.assert_allclose(moved[:, 2], [40 * np.sin(0.03), 40 * np.sin(0.02) * np.cos(0.03)], atol=1e-3)
    for row in range(len(frame.boxes)):
        inside = points_in_box(frame.points, frame.boxes[row])
        was = local_positions(frame.points[inside], frame.boxes[row])
        now = local_positions(tilted.points[inside], tilted.boxes[row])
        # A point is at most about 3 m from the centre, so an upright box is off by 3 m x 0.05.
        assert np.abs(now - was).max() < 0.15
    assert not np.array_equal(
        change_sensor(frame, AugmentConfig(tilt_rad=0.03), np.random.default_rng(0)).points, frame.points
    )


def test_ranges_move_along_their_rays(street: Street) -> None:
    frame = street(0)
    points = np.concatenate([frame.points, np.zeros((1, 4), np.float32)])
    moved = jitter_ranges(replace(frame, points=points), 0.05, np.random.default_rng(0)).points[:-1]
    before, after = (np.linalg.norm(part[:, :3], axis=1) for part in (frame.points, moved))
    assert (after - before).std() == pytest.approx(0.05, rel=0.1)
    np.testing.assert_allclose(
        moved[:, :3] / after[:, None], frame.points[:, :3] / before[:, None], atol=1e-4
    )


def test_intensities_change_together(street: Street) -> None:
    frame = street(0)
    scaled = change_intensity(frame, AugmentConfig(intensity_scale=0.4), np.random.default_rng(3)).points[
        :, 3
    ]
    factor = scaled[0] / frame.points[0, 3]
    assert 0.6 <= factor <= 1.4
    np.testing.assert_allclose(scaled, np.clip(frame.points[:, 3] * factor, 0, 1), rtol=1e-4)
    factors = [
        np.max(
            change_intensity(frame, AugmentConfig(intensity_factor=4.0), np.random.default_rng(seed)).points[
                :, 3
            ]
        )
        / frame.points[:, 3].max()
        for seed in range(40)
    ]
    assert 0.25 <= min(factors) < 0.5
    assert np.mean(np.array(factors) < 1) == pytest.approx(0.5, abs=0.2)
    without = change_intensity(frame, AugmentConfig(drop_intensity=1.0), np.random.default_rng(3))
    assert not without.points[:, 3].any()


def test_nothing_changes_and_nothing_is_drawn_by_default(street: Street) -> None:
    random = np.random.default_rng(1)
    before = random.bit_generator.state
    frame = street(0)
    assert change_sensor(frame, AugmentConfig(), random) is frame
    assert random.bit_generator.state == before


@pytest.mark.parametrize("seed", range(4))
def test_everything_together(street: Street, seed: int, without_objects: TrainingFrame) -> None:
    config = AugmentConfig(
        drop_beams=1.0,
        sensor_height_m=1.0,
        tilt_rad=0.02,
        range_noise_m=0.02,
        intensity_scale=0.3,
        drop_intensity=0.5,
    )
    nothing = replace(without_objects, points=without_objects.points[:0])
    for frame in (street(seed), nothing):
        first, second = (change_sensor(frame, config, np.random.default_rng(seed)) for _ in range(2))
        np.testing.assert_array_equal(first.points, second.points)
        assert first.points.dtype == first.boxes.dtype == np.float32
        assert np.isfinite(first.points).all()
        assert len(first.points) <= 0.7 * len(frame.points)


@pytest.mark.parametrize(
    "field", ["drop_beams", "tilt_rad", "intensity_scale", "drop_intensity", "range_noise_m"]
)
def test_values_that_cannot_be(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"augment\.{field}"):
        AugmentConfig(**{field: -0.1})
