"""Frames in memory and out of it, and damaged ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perception.checkpoints.weights import save_weights
from perception.config import TrainConfig, load_config
from perception.data import CameraCalibration, objects_from_boxes, open_data_set
from perception.data.dair_v2x import DairV2xSide
from perception.data.kitti import KittiDataSet, write_calibration
from perception.data.nuscenes import NuScenesDataSet
from perception.detector import Detector
from perception.errors import DataError
from perception.model.network import Network
from perception.train.data.frames import (
    IGNORED,
    LabelIndex,
    LoadedFrames,
    SensorKind,
    TrainingFrame,
    class_counts,
    load_frames,
    with_measured_sizes,
)
from perception.train.fine_tune import FineTune
from perception.train.run import train, training_part
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


def write_sequence(folder: Path, street: Callable[[int], TrainingFrame], frames: int = 3) -> Path:
    """A KITTI sequence: one street seen from a sensor that drives 0.4 m a scan; its objects stand."""
    (folder / "velodyne_reduced").mkdir(parents=True)
    write_calibration(folder / "calib.txt", CameraCalibration.default())
    seen, lines = street(0), []
    names = [CLASSES[label] for label in seen.labels]
    for number in range(frames):
        points, boxes = seen.points.copy(), seen.boxes.copy()
        points[:, 0] -= 0.4 * number
        boxes[:, 0] -= 0.4 * number
        points.astype("<f4").tofile(folder / f"velodyne_reduced/{number:06d}.bin")
        objects = objects_from_boxes(boxes, names, None, CameraCalibration.default())
        for track, item in enumerate(objects):
            numbers = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
            words = [f"{value:.6f}" for value in (*numbers, item.rotation_y)]
            lines.append(" ".join([str(number), str(track), item.type, "0", "0", *words]))
    (folder / "labels.txt").write_text("\n".join(lines))
    (folder / "poses.txt").write_text("".join(f"1 0 0 {0.4 * k} 0 1 0 0 0 0 1 0\n" for k in range(frames)))
    (folder / "timestamps.txt").write_text("".join(f"{0.1 * k}\n" for k in range(frames)))
    return folder


def test_training_reads_past_scans(
    street: Callable[[int], TrainingFrame], tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path
) -> None:
    data_set = open_data_set(write_sequence(tmp_path / "drive", street))
    pillars = replace(tiny_training.detector.pillars, sweeps=3)
    frames = load_frames(data_set, CLASSES, pillars=pillars)
    one = len(street(0).points)
    ages = [sorted(np.unique(frame.points[:, 4].round(3)).tolist()) for frame in frames]
    np.testing.assert_allclose(ages[2], [0, 0.1, 0.2], atol=1e-6)
    assert [len(each) for each in ages] == [1, 2, 3]
    # The street stands still, so that past points lie on those of now.
    last = frames[2].points
    np.testing.assert_allclose(last[one : one + 50, :3], frames[1].points[:50, :3] - [0.4, 0, 0], atol=1e-4)
    assert same(load_frames(data_set, CLASSES, pillars=pillars, memory_bytes=0)[2], frames[2])
    # Single scans have the column, too.
    alone = load_frames(open_data_set(kitti_folder, "train"), CLASSES, pillars=pillars)
    assert not alone[0].points[:, 4].any()
    config = replace(tiny_training, steps=2, detector=replace(tiny_training.detector, pillars=pillars))
    trainer = Trainer(config, tmp_path / "run", frames, extra=alone)
    assert trainer.run(show_progress=False)
    assert trainer.averaged_network().encoder.points.linear.in_features == 10


def test_names_of_labels_stand_for_classes(
    street: Callable[[int], TrainingFrame], kitti_folder: Path, tmp_path: Path
) -> None:
    """Cars are vehicles, pedestrians are ignored, and the labels cannot have buses."""
    data_set = open_data_set(kitti_folder, "train")
    classes, names = ("bus", "vehicle"), {"Car": "vehicle", "Truck": "vehicle", "Pedestrian": ""}
    index = LabelIndex.of(data_set, classes, names)
    assert (index.rows["Car"], index.rows["Pedestrian"], index.unlabelled) == (1, IGNORED, (0,))
    frames = load_frames(data_set, classes, names=names)
    assert sorted(frames[0].labels.tolist()) == [IGNORED, IGNORED, 1, 1]
    assert frames[0].unlabelled == (0,)
    again = load_frames(data_set, classes, names=names, memory_bytes=0)[0]
    assert again.unlabelled == (0,)
    # Without a table, names must be those of the classes, all classes count, and the rest is background.
    plain = load_frames(data_set, CLASSES)
    assert plain[0].unlabelled == ()
    assert load_frames(data_set, ("Car",))[0].labels.tolist() == [0, 0]


def test_the_ten_classes_of_every_data_set() -> None:
    config = load_config(TrainConfig, Path("perception/configs/pointpillars-ten.yaml"))
    classes = config.detector.head.classes
    assert sorted(classes) == sorted(NuScenesDataSet.classes)
    missing = {}
    for kind in (NuScenesDataSet, KittiDataSet, DairV2xSide):
        index = LabelIndex.of(kind, classes, config.names)
        # Every name in the labels means a class, or is ignored on purpose.
        assert set(kind.classes) <= set(index.rows)
        missing[kind.kind] = {classes[row] for row in index.unlabelled}
    assert missing["nuScenes"] == set()
    assert missing[KittiDataSet.kind] == {
        "bus", "trailer", "construction_vehicle", "motorcycle", "traffic_cone", "barrier"
    }  # fmt: skip
    assert missing[DairV2xSide.kind] == {"trailer", "construction_vehicle", "barrier"}


def test_parts_of_data_sets(
    street: Callable[[int], TrainingFrame], kitti_folder: Path, tmp_path: Path
) -> None:
    assert len(training_part(kitti_folder)) == 3
    assert training_part(f"{kitti_folder}@val").frame_ids == ["000003"]
    assert len(training_part(f"{kitti_folder}@all")) == 4
    drive = write_sequence(tmp_path / "a@drive", street)
    assert len(training_part(drive, whole=True)) == 3
    with pytest.raises(DataError, match="no split 'train'"):
        training_part(drive)


def test_a_training_with_names_sweeps_and_velocities(
    street: Callable[[int], TrainingFrame], tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path
) -> None:
    """A drive and single frames, whose labels name other classes, from weights for one scan."""
    classes = ("vehicle", "walker", "cone")
    head = replace(tiny_training.detector.head, classes=classes, velocity=True)
    detector = replace(
        tiny_training.detector, head=head, pillars=replace(tiny_training.detector.pillars, sweeps=3)
    )
    config = replace(
        tiny_training,
        steps=2,
        detector=detector,
        names={"Car": "vehicle", "Pedestrian": "walker", "Cyclist": ""},
        augment=replace(tiny_training.augment, paste={}, paste_rest=3),
    )
    drive = write_sequence(tmp_path / "drive", street)
    source = tmp_path / "source.safetensors"
    save_weights(Network(tiny_training.detector), source)
    outcome = train(
        config, f"{drive}@all", tmp_path / "run", extra=[kitti_folder], show_progress=False,
        fine_tune=FineTune(str(source)), check=True,
    )  # fmt: skip
    assert outcome.finished
    found = Detector.from_pretrained(tmp_path / "run" / "weights.safetensors")
    assert found.config.head.classes == classes
    assert found.config.pillars.sweeps == 3
    assert "velocity" in (tmp_path / "run" / "log.csv").read_text().splitlines()[0]
