"""``perceive train``, ``simulate`` and ``doctor``."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.checkpoints.compression import kept_masks
from perception.checkpoints.weights import load_weights
from perception.cli.train.command import resolve_config
from perception.config import DetectorConfig, TrainConfig, load_config, save_config
from perception.data import open_data_set
from perception.errors import ConfigError
from perception.train import run
from perception.train.data.batches import Batch
from perception.train.trainer import Trainer

Perceive = Callable[..., Any]


@pytest.fixture
def short(tiny_config: DetectorConfig, tmp_path: Path) -> Path:
    """The smoke configuration, four steps of a tiny detector."""
    config = replace(load_config(TrainConfig, resolve_config("smoke")), detector=tiny_config, steps=4)
    save_config(config, tmp_path / "short.yaml")
    return tmp_path / "short.yaml"


@pytest.mark.usefixtures("drawn_curves")
def test_train_then_detect(perceive: Perceive, short: Path, kitti_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = perceive("train", short, "--data", kitti_folder, "--out", run)
    assert done.status == 0
    assert "weights.safetensors" in done.output
    assert "Car 3D AP40" in done.output
    assert "training 4 steps on cpu" in done.remarks
    assert "step 4 of 4: loss" in done.remarks
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "config.yaml", "checkpoint.pt", "log.csv", "curves.png", "tensorboard", "weights.safetensors"
    }  # fmt: skip
    scan = kitti_folder / "training/velodyne/000000.bin"
    arguments = ("--weights", run / "weights.safetensors", "--no-pictures")
    assert perceive("detect", scan, "--out", tmp_path / "out", *arguments).status == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_command_resumes(
    number: signal.Signals,
    perceive: Perceive,
    short: Path,
    kitti_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("train", short, "--data", kitti_folder, "--out", tmp_path / "run")
    step = Trainer.train_step

    def signalled(trainer: Trainer, batch: Batch) -> Any:
        if trainer.step == 1:
            signal.raise_signal(number)
        return step(trainer, batch)

    with monkeypatch.context() as changed:
        changed.setattr(Trainer, "train_step", signalled)
        stopped = perceive(*arguments)
    assert stopped.status == 128 + number
    assert "perceive train: interrupted at step 2 of 4, saved in" in stopped.remarks
    assert "to resume" in stopped.remarks
    assert load_weights(tmp_path / "run/weights.safetensors")
    done = perceive(*arguments)
    assert done.status == 0
    assert f"resuming {tmp_path / 'run'} at step 2 of 4" in done.remarks


def test_it_says_where_there_is_nothing_to_resume(
    perceive: Perceive, short: Path, kitti_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("train", short, "--data", kitti_folder, "--out", tmp_path / "run")
    with monkeypatch.context() as changed:
        changed.setattr(run, "load_frames", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
        stopped = perceive(*arguments)
    assert stopped.status == 143
    assert "interrupted before the first step" in stopped.remarks
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("")
    done = perceive(*arguments)
    assert f"{tmp_path / 'run'} has an earlier run without checkpoint.pt" in done.remarks


def test_train_stops_and_goes_on(perceive: Perceive, short: Path, kitti_folder: Path, tmp_path: Path) -> None:
    arguments = ("train", short, "--data", kitti_folder, "--out", tmp_path / "run")
    stopped = perceive(*arguments, "--max-seconds", 0)
    assert stopped.status == 0
    assert "stopped at step 1" in stopped.output
    assert "weights.safetensors (so far)" in stopped.output
    assert (
        load_weights(tmp_path / "run/weights.safetensors").config == load_config(TrainConfig, short).detector
    )
    done = perceive(*arguments, "--json")
    record = json.loads(done.output)
    assert (record["step"], record["finished"]) == (4, True)
    assert set(record["metrics"]) >= {"Car", "Pedestrian"}


def test_train_in_the_folder_of_another_run(
    perceive: Perceive, short: Path, kitti_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    perceive("train", short, "--data", kitti_folder, "--out", run, "--max-seconds", 0)
    other = replace(load_config(TrainConfig, short), seed=77)
    save_config(other, tmp_path / "other.yaml")
    done = perceive("train", tmp_path / "other.yaml", "--data", kitti_folder, "--out", run)
    assert done.status == 2
    assert "another 'seed'" in done.remarks


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("no-such-config", "embedding, own, pointpillars-anywhere, pointpillars-kitti"),
        ("wrong.yaml", "unknown field colour"),
    ],
)
def test_train_with_a_bad_configuration(
    perceive: Perceive, kitti_folder: Path, tmp_path: Path, config: str, message: str
) -> None:
    (tmp_path / "wrong.yaml").write_text("colour: red\n")
    name = tmp_path / config if config.endswith("yaml") else config
    done = perceive("train", name, "--data", kitti_folder, "--out", tmp_path / "run")
    assert done.status == 2
    assert message in done.remarks


def test_train_on_an_unknown_class(
    perceive: Perceive, short: Path, kitti_folder: Path, tmp_path: Path
) -> None:
    config = load_config(TrainConfig, short)
    head = replace(config.detector.head, classes=("Tram",))
    save_config(replace(config, detector=replace(config.detector, head=head)), short)
    done = perceive("train", short, "--data", kitti_folder, "--out", tmp_path / "run")
    assert done.status == 2
    assert "no training frame contains Tram" in done.remarks


def test_train_for_other_classes(
    perceive: Perceive, short: Path, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    arguments = ("--from", tiny_weights, "--classes", "Pedestrian", "--range=0,-8,-3,16,8,2")
    done = perceive("train", short, "--data", kitti_folder, "--out", tmp_path / "run", *arguments)
    assert done.status == 0
    assert "kept: Pedestrian; dropped: Car" in done.remarks
    assert "few boxes to learn from: 6 of Pedestrian" in done.remarks
    config = load_weights(tmp_path / "run/weights.safetensors").config
    assert config.head.classes == ("Pedestrian",)
    assert config.pillars.range_m == (0.0, -8.0, -3.0, 16.0, 8.0, 2.0)
    wrong = perceive("train", short, "--data", kitti_folder, "--out", tmp_path / "other", "--classes", "Tram")
    assert wrong.status == 2
    assert "the labels contain Car (6), Pedestrian (6)" in wrong.remarks


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("training/calib/000001.txt", "calib/000001.txt"),
        ("training/label_2/000001.txt", "label_2/000001.txt"),
        ("training/velodyne/000001.bin", "000001"),
        ("ImageSets/train.txt", "ImageSets/train.txt"),
    ],
)
def test_train_names_a_missing_file(
    perceive: Perceive, short: Path, kitti_folder: Path, tmp_path: Path, missing: str, message: str
) -> None:
    shutil.copytree(kitti_folder, tmp_path / "data")
    (tmp_path / "data" / missing).unlink()
    done = perceive("train", short, "--data", tmp_path / "data", "--out", tmp_path / "run")
    assert done.status == 2
    assert message in done.remarks


@pytest.mark.parametrize("name", ["own", "pointpillars-kitti", "pointpillars-kitti-dense", "smoke"])
def test_shipped_configurations_are_found_by_name(name: str) -> None:
    path = resolve_config(name)
    assert path.name == f"{name}.yaml"
    assert load_config(TrainConfig, path).detector.name == name


def test_configurations_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="nothing"):
        resolve_config("nothing")


def test_simulate(perceive: Perceive, tmp_path: Path) -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    done = perceive("simulate", "--out", tmp_path, "--frames", 1, "--beams", 16, "--seed", 3)
    assert done.status == 0
    assert "1 frames" in done.output
    (scan,) = (tmp_path / "training/velodyne_reduced").iterdir()
    assert scan.name == "000003.bin"
    assert scan.stat().st_size > 16_000
    assert (tmp_path / "training/label_2/000003.txt").is_file()
    assert perceive("simulate", "--out", tmp_path, "--frames", 0).status == 2


def test_simulate_another_sensor_and_other_classes(perceive: Perceive, tmp_path: Path) -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    arguments = (
        "--beams",
        16,
        "--full-turn",
        "--sensor-height",
        "0.6",
        "--classes",
        "nuscenes",
        "--frames",
        1,
    )
    assert perceive("simulate", "--out", tmp_path, *arguments).status == 0
    frame = open_data_set(tmp_path, "train")[0]
    assert "car" in frame.labels
    assert np.median(frame.boxes[:, 2] - frame.boxes[:, 5] / 2) > -1.1
    wrong = perceive("simulate", "--out", tmp_path, "--sensor-height", "high")
    assert wrong.status == 2
    assert "--sensor-height must be one number or LOW,HIGH" in wrong.remarks


def test_label_a_drive_and_train_on_it(
    perceive: Perceive, short: Path, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    poses = tmp_path / "poses.txt"
    poses.write_text("1 0 0 0 0 1 0 0 0 0 1 0\n" * 4)
    drive = ("pseudo-label", kitti_folder, "--weights", tiny_weights, "--poses", poses)
    done = perceive(*drive, "--out", tmp_path / "pseudo", "--score", "0", "--doubt", "0", "--agree", "0")
    assert done.status == 0, done.remarks
    assert "4 scans" in done.output
    assert " removed" in done.output
    arguments = ("--data", kitti_folder, "--extra", tmp_path / "pseudo", "--out", tmp_path / "run")
    assert perceive("train", short, *arguments).status == 0
    wrong = perceive(*drive, "--out", tmp_path / "other", "--agree", "7")
    assert wrong.status == 2
    assert "agree must be at most" in wrong.remarks


def test_doctor_on_a_good_folder(perceive: Perceive, kitti_folder: Path) -> None:
    done = perceive("doctor", kitti_folder, "--classes", "Car,Pedestrian", "--json")
    report = json.loads(done.output)
    assert done.status == 0, report["findings"]
    assert report["ok"]
    assert report["statistics"]["boxes"]["Car"] == 8
    few = json.loads(perceive("doctor", kitti_folder, "--max-frames", 2, "--json").output)
    assert few["statistics"]["frames"] == 2


def test_doctor_without_a_folder(perceive: Perceive, tmp_path: Path) -> None:
    done = perceive("doctor", tmp_path / "nowhere")
    assert done.status != 0
    assert "nowhere" in (done.remarks + done.output).replace("\n", "")


def test_doctor_of_the_installation(perceive: Perceive, tmp_path: Path) -> None:
    done = perceive("doctor", "--install", "--json")
    report = json.loads(done.output)
    assert done.status == (0 if report["ok"] else 1)
    assert {"versions", "devices", "extras", "parts", "caches", "findings"} <= report.keys()
    for words in ((), ("--install", tmp_path)):
        refused = perceive("doctor", *words)
        assert refused.status == 2
        assert "perceive doctor --install" in refused.remarks


# Small scans are few rows to calibrate with.
@pytest.mark.filterwarnings("ignore::sparse_core.nm.CalibrationWarning")
def test_fine_tune_with_masks(
    perceive: Perceive, short: Path, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    common = ("train", short, "--data", kitti_folder, "--steps", 2, "--learning-rate", 0.001)
    done = perceive(*common, "--out", tmp_path / "run", "--from", tiny_weights, "--masks", "2:4", "--json")
    assert done.status == 0
    assert json.loads(done.output)["step"] == 2
    assert kept_masks(load_weights(tmp_path / "run/weights.safetensors")) is not None
    alone = perceive(*common, "--out", tmp_path / "other", "--masks", "2:4")
    assert alone.status != 0
    assert "--masks and --coding need" in alone.remarks
