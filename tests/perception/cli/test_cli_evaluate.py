"""``perceive eval``: a detector or result files against labels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perception.config import DetectorConfig
from perception.evaluate.data_set import detections_to_objects
from perception.io.kitti import KittiCalibration, KittiDataset, read_objects, write_objects
from perception.model.network import Network
from perception.model.weights import save_weights
from perception.types import Detections

Perceive = Callable[..., Any]


def perfect_results(kitti_folder: Path, directory: Path) -> Path:
    directory.mkdir()
    for path in (kitti_folder / "training/label_2").iterdir():
        objects = [replace(entry, score=0.9) for entry in read_objects(path)]
        write_objects(directory / path.name, objects)
    return directory


def test_a_detector(perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = perceive("eval", "--data", kitti_folder, "--weights", tiny_weights, "--out", out)
    assert done.status == 0
    assert "Car" in done.output
    assert "Pedestrian" in done.output
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics) >= {"Car", "Pedestrian"}
    assert (out / "precision_recall.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (out / "results").iterdir()] == ["000003.txt"]


def test_json(perceive: Perceive, kitti_folder: Path, tiny_weights: Path) -> None:
    done = perceive("eval", "--data", kitti_folder, "--split", "all", "--weights", tiny_weights, "--json")
    assert done.status == 0
    assert set(json.loads(done.output)["Car"]) >= {"2d", "bev", "3d", "aos"}


def test_thresholds_are_chosen_and_not_looked_at(
    perceive: Perceive, kitti_folder: Path, tiny_config: DetectorConfig, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    every = replace(tiny_config.nms, score_threshold=0.0)
    network = Network(replace(tiny_config, nms=every))
    save_weights(network, tmp_path / "all.safetensors")
    strict = replace(every, report_thresholds={"Car": 1.0, "Pedestrian": 1.0})
    network.config = replace(tiny_config, nms=strict)
    save_weights(network, tmp_path / "strict.safetensors")
    for name in ("all", "strict"):
        arguments = ("--weights", tmp_path / f"{name}.safetensors", "--out", tmp_path / name)
        done = perceive("eval", "--data", kitti_folder, *arguments, "--thresholds")
        assert done.status == 0
        assert "Score thresholds of the greatest F2" in done.output
    results = [(tmp_path / name / "results/000003.txt").read_text() for name in ("all", "strict")]
    assert results[0] == results[1] != ""
    metrics = json.loads((tmp_path / "all/metrics.json").read_text())
    assert set(metrics["thresholds"]) <= {"Car", "Pedestrian"}
    done = perceive("eval", "--data", kitti_folder, "--results", tmp_path / "all/results", "--thresholds")
    assert done.status == 2
    assert "leave --results out" in done.remarks


def test_results_that_are_the_labels(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    results = perfect_results(kitti_folder, tmp_path / "results")
    done = perceive("eval", "--data", kitti_folder, "--split", "all", "--results", results, "--json")
    assert done.status == 0
    values = json.loads(done.output)["Car"]["3d"]["AP40"]
    # 8 labels: the protocol samples 7 of the 40 recall positions, all of them at a precision of 1.
    assert values["easy"] == pytest.approx(17.5)
    done = perceive("eval", "--data", kitti_folder, "--results", results)  # only the frame of val
    assert done.status == 0
    assert "Pedestrian" in done.output
    for path in results.iterdir():
        objects = read_objects(path)
        x, y, z = objects[0].location
        write_objects(path, [replace(entry, location=(x, y, z + 30)) for entry in objects])
    done = perceive("eval", "--data", kitti_folder, "--split", "all", "--results", results, "--json")
    assert json.loads(done.output)["Car"]["3d"]["AP40"]["easy"] == 0


def test_a_missing_result_file_is_named(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    results = perfect_results(kitti_folder, tmp_path / "results")
    (results / "000003.txt").unlink()
    done = perceive("eval", "--data", kitti_folder, "--results", results)
    assert done.status == 2
    assert "000003" in done.remarks
    missing = perceive("eval", "--data", kitti_folder, "--results", tmp_path / "nowhere")
    assert missing.status == 2
    assert "nowhere" in missing.remarks


def test_results_need_labels_only(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(kitti_folder / "training/label_2", data / "training/label_2")
    shutil.copytree(kitti_folder / "ImageSets", data / "ImageSets")
    results = perfect_results(kitti_folder, tmp_path / "results")
    for split in ("val", "all"):
        arguments = ("--split", split, "--results", results, "--json")
        found = perceive("eval", "--data", data, *arguments)
        assert found.status == 0, found.remarks
        assert found.output == perceive("eval", "--data", kitti_folder, *arguments).output
    shutil.rmtree(data / "training/label_2")
    done = perceive("eval", "--data", data, "--results", results)
    assert done.status == 2
    assert "label_2: no such folder; name the folder with the labels" in done.remarks


def test_missing_result_files_can_be_allowed(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    results = perfect_results(kitti_folder, tmp_path / "results")
    (results / "000003.txt").unlink()
    arguments = ("eval", "--data", kitti_folder, "--split", "all", "--results", results, "--json")
    refused = perceive(*arguments)
    assert refused.status == 2
    assert "--missing empty" in refused.remarks
    recall = [
        json.loads(perceive(*arguments, "--missing", choice).output)["Car"]["3d"]["AP40"]["easy"]
        for choice in ("skip", "empty")
    ]
    assert recall[0] > 0
    assert recall[1] > 0


def test_a_missing_calibration_is_named(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    shutil.copytree(kitti_folder, tmp_path / "data")
    (tmp_path / "data/training/calib/000003.txt").unlink()
    done = perceive("eval", "--data", tmp_path / "data", "--weights", tiny_weights)
    assert done.status == 2
    assert "calib/000003.txt" in done.remarks
    assert "Traceback" not in done.remarks


@pytest.mark.parametrize(("split", "message"), [("test", "ImageSets/test.txt"), ("../val", "val.txt")])
def test_an_unknown_split_is_named(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, split: str, message: str
) -> None:
    done = perceive("eval", "--data", kitti_folder, "--split", split, "--weights", tiny_weights)
    assert done.status == 2
    assert message in done.remarks
    assert (
        "there are 'train', 'val'; write one frame id a line, or take all frames (--split all" in done.remarks
    )


def test_an_unknown_folder_is_named(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    done = perceive("eval", "--data", tmp_path / "nowhere", "--weights", tiny_weights)
    assert done.status == 2
    assert "nowhere: no such folder" in done.remarks


def test_only_what_the_camera_sees_becomes_a_result(kitti_folder: Path) -> None:
    frame = KittiDataset(kitti_folder, "train").load("000000")
    truth = frame.boxes
    behind = truth.boxes.copy()
    behind[:, 0] = -10
    beside = truth.boxes.copy()
    beside[:, 1] = 200
    boxes = np.concatenate([truth.boxes, behind, beside])
    scores = np.linspace(0.9, 0.1, len(boxes)).astype(np.float32)
    found = Detections(boxes, scores, truth.labels * 3)
    objects = detections_to_objects(found, KittiCalibration.default())
    assert [entry.type for entry in objects] == truth.labels
    assert [entry.score for entry in objects] == pytest.approx(scores[: len(objects)].tolist(), abs=1e-4)
    for entry, label in zip(objects, frame.objects, strict=True):
        np.testing.assert_allclose(entry.location, label.location, atol=0.02)
