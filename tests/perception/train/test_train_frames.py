"""Frames in memory and out of it, and damaged ones."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perception.config import TrainConfig
from perception.data import open_data_set
from perception.errors import DataError
from perception.train.data.frames import (
    IGNORED,
    LoadedFrames,
    SensorKind,
    TrainingFrame,
    class_counts,
    load_frames,
    with_measured_sizes,
)
from perception.train.run import train
from perception.train.trainer import Trainer

CLASSES = ("Car", "Pedestrian")


def same(first: TrainingFrame, second: TrainingFrame) -> bool:
    return np.array_equal(first.points, second.points) and np.array_equal(first.boxes, second.boxes)


def test_labels_with_other_names_and_the_sensor(kitti_folder: Path) -> None:
    data_set, kind = open_data_set(kitti_folder, "train"), SensorKind("of KITTI", 64)
    plain = load_frames(data_set, CLASSES)
    both = class_counts(plain, CLASSES)
    assert min(both.values()) > 0
    for memory_bytes in (np.inf, 0):
        found = load_frames(
            data_set,
            ("Vehicle",),
            names={"Car": "Vehicle", "Pedestrian": ""},
            sensor=kind,
            memory_bytes=memory_bytes,
        )
        assert class_counts(found, ("Vehicle",)) == {"Vehicle": both["Car"]}
        assert sum(int((frame.labels == IGNORED).sum()) for frame in found) == both["Pedestrian"]
        assert {frame.sensor for frame in found} == {kind}


def test_frames_beyond_the_memory_are_read_again(
    kitti_folder: Path, tiny_training: TrainConfig, tmp_path: Path
) -> None:
    data_set = open_data_set(kitti_folder, "train")
    kept = load_frames(data_set, CLASSES)
    some = load_frames(data_set, CLASSES, memory_bytes=kept[0].points.nbytes)
    none = load_frames(data_set, CLASSES, memory_bytes=0)
    assert kept.nbytes == sum(frame.points.nbytes for frame in kept)
    assert (some.nbytes, none.nbytes) == (kept[0].points.nbytes, 0)
    for frames in (some, none, none[:] + LoadedFrames()):
        assert len(frames) == 3
        assert all(same(one, two) for one, two in zip(frames, kept, strict=True))
        assert class_counts(frames, CLASSES) == class_counts(kept, CLASSES)
    assert none[1] is not none[1]
    assert all(len(frame.points) == 0 and len(frame.boxes) == 4 for frame in none.bare())
    detector = tiny_training.detector
    assert with_measured_sizes(detector, none) == with_measured_sizes(detector, kept)
    runs = [Trainer(tiny_training, tmp_path / name, part) for name, part in (("none", none), ("kept", kept))]
    assert all(same(runs[0].samples[number], runs[1].samples[number]) for number in range(4))


@pytest.fixture
def damaged(kitti_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(kitti_folder, tmp_path / "data")
    (tmp_path / "data/training/velodyne/000001.bin").write_bytes(b"12345")
    return tmp_path / "data"


def test_damaged_frames_are_left_out_on_request(
    damaged: Path, tiny_training: TrainConfig, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=1)
    with pytest.raises(DataError, match=r"000001\.bin"):
        train(config, damaged, tmp_path / "run", show_progress=False)
    outcome = train(config, damaged, tmp_path / "run", show_progress=False, skip_damaged=True)
    assert outcome.finished
    assert outcome.remarks[0].startswith("skipped 1 damaged frame: ")
    assert "000001.bin" in outcome.remarks[0]


def test_nothing_but_damaged_frames(damaged: Path, tiny_training: TrainConfig, tmp_path: Path) -> None:
    for number in (0, 2):
        (damaged / f"training/velodyne/00000{number}.bin").write_bytes(b"12345")
    with pytest.raises(DataError, match="split is empty"):
        train(tiny_training, damaged, tmp_path / "run", show_progress=False, skip_damaged=True)
