"""``perceive train embedding``: a head from a drive, beside the weights that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import Detector, PointCloud
from perception.checkpoints.weights import save_weights
from perception.cli.train.command import resolve_config
from perception.cli.train.embedding import trains_embedding
from perception.config import load_config, save_config
from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration
from perception.io import save_point_cloud
from perception.model.embedding import load_embedding
from perception.model.network import Network
from perception.train.data.frames import TrainingFrame
from perception.train.identity import IdentityConfig

Perceive = Callable[..., Any]


@pytest.fixture
def weights(tiny_network: Network, tmp_path: Path) -> Path:
    """A tiny detector that reports whatever it finds."""
    config = tiny_network.config
    tiny_network.config = replace(config, nms=replace(config.nms, score_threshold=0.0))
    save_weights(tiny_network, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


@pytest.fixture
def drive(weights: Path, street: Callable[[int], TrainingFrame], tmp_path: Path) -> Path:
    """Three frames whose labels are what the detector finds."""
    folder, calibration = tmp_path / "drive", CameraCalibration.default()
    (folder / "velodyne_reduced").mkdir(parents=True)
    write_calibration(folder / "calib.txt", calibration)
    detector, lines = Detector.from_pretrained(weights), []
    for number in range(3):
        points = street(number).points
        save_point_cloud(folder / f"velodyne_reduced/{number:06d}.bin", PointCloud(points))
        found = detector(points)[:4]
        items = objects_from_boxes(found.boxes, found.labels, None, calibration)
        for track, item in enumerate(items):
            sizes = (item.height_m, item.width_m, item.length_m, *item.location, item.rotation_y)
            numbers = " ".join(f"{value:.5f}" for value in (item.alpha, *item.box_2d, *sizes))
            lines.append(f"{number} {track} {item.type} 0 0 {numbers}")
    (folder / "labels.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture
def short(tmp_path: Path) -> Path:
    config = replace(load_config(IdentityConfig, resolve_config("embedding")), towns=0, held_towns=0, steps=5)
    save_config(config, tmp_path / "short.yaml")
    return tmp_path / "short.yaml"


def test_the_shipped_configuration_is_the_default() -> None:
    path = resolve_config("embedding")
    assert trains_embedding(path)
    assert load_config(IdentityConfig, path) == IdentityConfig()
    assert not trains_embedding(resolve_config("smoke"))


def test_train_then_detect(
    perceive: Perceive, short: Path, weights: Path, drive: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    arguments = ("train", short, "--from", weights, "--data", drive, "--out", run)
    stopped = perceive(*arguments, "--max-seconds", 0)
    assert stopped.status == 0
    assert "stopped at step 0" in stopped.output
    done = perceive(*arguments, "--json")
    assert done.status == 0
    record = json.loads(done.output)
    assert (record["step"], record["finished"], record["vectors"]) == (5, True, None)
    names = {path.name for path in run.iterdir()}
    assert names == {
        "checkpoint.pt", "config.yaml", "log.csv", "sights", "tensorboard", "weights.safetensors",
        "weights-embedding.safetensors",
    }  # fmt: skip
    assert (run / "weights.safetensors").read_bytes() == weights.read_bytes()
    assert (run / "log.csv").read_text().splitlines()[-1].startswith("5,")
    head = load_embedding(run / "weights.safetensors")
    scan = drive / "velodyne_reduced/000000.bin"
    found = Detector.from_pretrained(run / "weights.safetensors")(scan)
    assert head is not None
    assert found.embeddings is not None
    np.testing.assert_allclose(np.linalg.norm(found.embeddings, axis=1), 1.0, rtol=1e-5)
    again = perceive(*arguments)
    assert f"weights: {run / 'weights.safetensors'}, with the embedding head" in again.output


def test_what_a_head_cannot_be_trained_with(
    perceive: Perceive, short: Path, weights: Path, drive: Path, tmp_path: Path
) -> None:
    arguments = ("train", short, "--data", drive, "--out", tmp_path / "run")
    missing = perceive(*arguments)
    assert missing.status == 2
    assert "Add --from WEIGHTS" in missing.remarks
    masks = perceive(*arguments, "--from", weights, "--masks", "2:4")
    assert masks.status == 2
    assert "--masks works for detectors only" in masks.remarks
    scans = drive / "velodyne_reduced"
    unnamed = perceive("train", short, "--data", scans, "--out", tmp_path / "other", "--from", weights)
    assert unnamed.status == 2
    assert "has no track ids" in unnamed.remarks
