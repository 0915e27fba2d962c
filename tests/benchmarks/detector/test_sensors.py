"""Leaving sensors out: packed frames, and what a training without a sensor sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detector.sensors.archive import read_frames, write_frames
from benchmarks.detector.sensors.sources import LATE_FRAMES, LATE_NUSCENES, SOURCES
from benchmarks.detector.sensors.training import (
    TrainingOptions,
    job_name,
    starting_weights,
    training_frames,
)
from perception.config import TrainConfig
from perception.train.data.frames import IGNORED, SensorKind, TrainingFrame


def frame_of(name: str, kind: SensorKind, seed: int, count: int = 500) -> TrainingFrame:
    random = np.random.default_rng(seed)
    points = random.uniform([-61, -61, -4, 0], [61, 61, 3, 1], (count, 4)).astype(np.float32)
    boxes = random.uniform(-5, 5, (3, 7)).astype(np.float32)
    return TrainingFrame(name, points, boxes, np.array([0, 2, IGNORED]), sensor=kind)


def test_packed_frames_keep_everything_but_millimetres(tmp_path: Path) -> None:
    kinds = SensorKind("first", 64), SensorKind("second", 32)
    frames = [frame_of("a", kinds[0], 0), frame_of("b", kinds[1], 1, 0), frame_of("c", kinds[1], 2, 37)]
    write_frames(tmp_path / "packed/some.xz", frames)
    found = read_frames(tmp_path / "packed/some.xz")
    assert [(one.frame_id, one.sensor) for one in found] == [(one.frame_id, one.sensor) for one in frames]
    for one, other in zip(found, frames, strict=True):
        assert one.points.dtype == np.float32
        np.testing.assert_allclose(one.points[:, :3], other.points[:, :3], atol=1 / 256 + 1e-6)
        np.testing.assert_allclose(one.points[:, 3], other.points[:, 3], atol=0.5 / 255 + 1e-6)
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.labels, other.labels)


def test_packed_frames_keep_ages_velocities_and_unlabelled_classes(tmp_path: Path) -> None:
    frame = frame_of("a", SensorKind("first", 64), 0)
    ages = np.array([0.0, 0.5], np.float32).repeat(250)[:, None]
    velocities = np.array([[1.5, -2.0], [np.nan, np.nan], [0.0, 0.0]], np.float32)
    frame = replace(frame, points=np.hstack([frame.points, ages]), velocities=velocities, unlabelled=(1,))
    write_frames(tmp_path / "some.xz", [frame])
    (found,) = read_frames(tmp_path / "some.xz")
    np.testing.assert_array_equal(found.points[:, 4:], ages)
    np.testing.assert_array_equal(found.velocities, velocities)
    assert found.unlabelled == (1,)


@pytest.fixture
def options(tmp_path: Path) -> TrainingOptions:
    """Options with two packed frames of each sensor, more of nuScenes; the second of KITTI for validation."""
    for seed, (name, source) in enumerate(SOURCES.items()):
        kind = SensorKind(name, source.beams)
        count = LATE_FRAMES + 1 if name == "nuscenes" else 2
        write_frames(
            tmp_path / f"{name}.xz", [frame_of(f"{name}-{n}", kind, 20 * seed + n) for n in range(count)]
        )
    write_frames(tmp_path / "simulated-16.xz", [frame_of("simulated", SensorKind("simulated-16", 16), 99)])
    return TrainingOptions(
        packed=tmp_path, work=tmp_path, out=tmp_path, config=tmp_path, validation=("kitti-1",), steps=0,
        most=1, probe=1, max_seconds=1, started=0, workers=0, batch_size=1, fine_tune=False, device="cpu",
    )  # fmt: skip


def test_a_training_does_not_see_the_sensors_that_it_leaves_out(options: TrainingOptions) -> None:
    real, simulated = training_frames(options, TrainConfig(), ())
    ids = [frame.frame_id for frame in real]
    assert "kitti-0" in ids
    assert "kitti-1" not in ids
    assert ids.count("nuscenes-0") == SOURCES["nuscenes"].repeat == 3
    assert [frame.frame_id for frame in simulated] == ["simulated"]
    without = ("dair-vehicle", "dair-roadside")
    real, _ = training_frames(options, TrainConfig(), without)
    assert {frame.sensor.name for frame in real} == SOURCES.keys() - {*without}
    real, _ = training_frames(options, TrainConfig(names={"car": "Car"}), (LATE_NUSCENES,))
    ids = [frame.frame_id for frame in real if frame.sensor.name == "nuscenes"]
    assert ids == ["nuscenes-0"] * SOURCES["nuscenes"].repeat_ten
    assert (job_name(without), job_name(())) == ("without-dair-vehicle-dair-roadside", "all")


def test_a_training_starts_from_weights_that_have_not_seen_the_sensors_that_it_leaves_out() -> None:
    assert starting_weights(()) == "pointpillars-anywhere"
    assert starting_weights(("dair-vehicle", "dair-roadside")) == "pointpillars-kitti"
    assert starting_weights((LATE_NUSCENES,)) == "pointpillars-kitti"
    assert starting_weights(("nuscenes",)) == "pointpillars-kitti"
    assert starting_weights(("kitti",)) == starting_weights(("nuscenes", "kitti")) == ""
