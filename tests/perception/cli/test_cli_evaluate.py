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
from nuscenes_folder import write_nuscenes
from PIL import Image

from perception.checkpoints.weights import save_calibrated, save_weights
from perception.config import DetectorConfig
from perception.data import CameraCalibration, objects_from_boxes, open_data_set
from perception.data.kitti import KittiWriter, read_objects, write_objects
from perception.detector import Detector
from perception.evaluate.data_set import judge_of
from perception.evaluate.kitti.judge import detections_to_objects
from perception.model.network import Network
from perception.types import Detections, PointCloud

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
        assert "Score thresholds with the greatest F2" in done.output
    results = [(tmp_path / name / "results/000003.txt").read_text() for name in ("all", "strict")]
    assert results[0] == results[1] != ""
    metrics = json.loads((tmp_path / "all/metrics.json").read_text())
    assert set(metrics["thresholds"]) <= {"Car", "Pedestrian"}
    done = perceive("eval", "--data", kitti_folder, "--results", tmp_path / "all/results", "--thresholds")
    assert done.status == 2
    assert "--results out" in done.remarks


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
    assert "label_2: no such folder" in done.remarks


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


@pytest.mark.parametrize(("split", "message"), [("test", "ImageSets/test.txt"), ("../val", "val.txt")])
def test_an_unknown_split_is_named(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, split: str, message: str
) -> None:
    done = perceive("eval", "--data", kitti_folder, "--split", split, "--weights", tiny_weights)
    assert done.status == 2
    assert message in done.remarks
    assert (
        "lists: 'train', 'val'. Write one frame id per line, or use all frames (--split all" in done.remarks
    )


def test_only_what_the_camera_sees_becomes_a_result(kitti_folder: Path) -> None:
    frame = open_data_set(kitti_folder, "train").frame("000000")
    truth = frame.truth
    behind = truth.boxes.copy()
    behind[:, 0] = -10
    beside = truth.boxes.copy()
    beside[:, 1] = 200
    boxes = np.concatenate([truth.boxes, behind, beside])
    scores = np.linspace(0.9, 0.1, len(boxes)).astype(np.float32)
    found = Detections(boxes, scores, truth.labels * 3)
    objects = detections_to_objects(found, CameraCalibration.default())
    assert [entry.type for entry in objects] == truth.labels
    assert [entry.score for entry in objects] == pytest.approx(scores[: len(objects)].tolist(), abs=1e-4)
    for entry, label in zip(objects, frame.objects, strict=True):
        np.testing.assert_allclose(entry.location, label.location, atol=0.02)


@pytest.mark.parametrize("suffix", [".jpg", ".png", None])
def test_pictures_of_another_size_than_kittis(
    suffix: str | None, perceive: Perceive, tiny_weights: Path, tmp_path: Path
) -> None:
    """View-of-Delft: 1936 x 1216, where a pedestrian stands below all that KITTI's picture shows."""
    default = CameraCalibration.default()
    image = np.array([[1495.5, 0, 961.3, 0], [0, 1495.5, 624.9, 0], [0, 0, 1, 0]])
    camera = CameraCalibration(image, default.rectification, default.camera_from_lidar_raw)
    box = np.array([[10.0, -4.0, -0.8, 0.6, 0.6, 1.7, 0.0]], np.float32)
    (label,) = objects_from_boxes(box, ["Pedestrian"], None, camera, image_size=(1936, 1216))
    KittiWriter(tmp_path / "data", "velodyne").write("00000", PointCloud(np.ones((9, 4))), [label], camera)
    if suffix is not None:
        (tmp_path / "data/training/image_2").mkdir()
        Image.new("L", (1936, 1216)).save(tmp_path / f"data/training/image_2/00000{suffix}")
    found = Detections(box, np.array([0.9], np.float32), ["Pedestrian"])
    (tmp_path / "found.jsonl").write_text(json.dumps({"frame": "00000", **found.to_dict()}) + "\n")
    arguments = ("eval", "--data", tmp_path / "data", "--split", "all", "--json")
    done = perceive(*arguments, "--protocol", "boxes", "--results", tmp_path / "found.jsonl")
    assert done.status == 0, done.remarks
    assert json.loads(done.output)["classes"]["Pedestrian"]["recall"]["3d"] == 100
    told = "warning: 1 of 1 frames have no picture in image_2. Assumed 1923 x 1250"
    assert (told in done.remarks) == (suffix is None)
    frame = open_data_set(tmp_path / "data")[0]
    judge = judge_of(open_data_set(tmp_path / "data"))
    (tmp_path / "results").mkdir()
    judge.write(tmp_path / "results", [(frame, found)])
    assert len(read_objects(tmp_path / "results/00000.txt")) == 1


def test_a_folder_without_labels_is_named(perceive: Perceive, kitti_folder: Path, tiny_weights: Path) -> None:
    scans = kitti_folder / "training/velodyne"
    done = perceive("eval", "--data", scans, "--split", "all", "--weights", tiny_weights)
    assert done.status == 2
    assert "no labels" in done.remarks


def test_boxes_of_any_data(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("eval", "--data", kitti_folder, "--split", "all", "--protocol", "boxes")
    done = perceive(*arguments, "--weights", tiny_weights, "--out", out, "--intervals", "--samples", 5)
    assert done.status == 0, done.remarks
    assert "average precision over all recalls" in done.output
    assert "95% intervals" in done.output
    for name in ("precision_recall.png", "comparison.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["protocol"] == "boxes"
    results = out / "results/detections.jsonl"
    again = perceive(*arguments, "--results", results.parent, "--json")
    assert json.loads(again.output)["classes"] == metrics["classes"]


def test_boxes_that_are_the_labels(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    data_set = open_data_set(kitti_folder)
    path = tmp_path / "detections.jsonl"
    with path.open("w") as stream:
        for frame in data_set:
            truth = frame.truth
            behind = truth.boxes.copy()
            behind[:, 0] *= -1
            found = Detections(
                np.concatenate([truth.boxes, behind]),
                np.linspace(0.9, 0.2, 2 * len(truth), dtype=np.float32),
                truth.labels * 2,
            )
            stream.write(json.dumps({"frame": frame.frame_id, **found.to_dict()}) + "\n")
    arguments = ("eval", "--data", kitti_folder, "--split", "all", "--protocol", "boxes", "--json")
    done = perceive(*arguments, "--results", path, "--match", "Car=2m")
    assert done.status == 0, done.remarks
    record = json.loads(done.output)
    assert record["classes"]["Car"]["AP"] == {"3d": 100.0, "bev": 100.0}
    assert record["classes"]["Car"]["match"] == "< 2 m"
    labels = sum(len(frame.truth) for frame in data_set)
    counted = sum(entry["labels"] for entry in record["classes"].values())
    unseen = record["left_out"].get("labels outside the image", 0)
    assert counted + unseen == labels
    assert record["left_out"]["detections outside the image, where nothing is labelled"] == labels + unseen
    for wrong, message in (
        (("--match", "Car"), "CLASS=LIMIT"),
        (("--match", "Car=x"), "expected an overlap"),
        (("--match", "Tram=0.5"), "not evaluated"),
    ):
        refused = perceive(*arguments, "--results", path, *wrong)
        assert (refused.status, message in refused.remarks) == (2, True), refused.remarks
    path.write_text('{"frame": "000000"}\n')
    refused = perceive(*arguments, "--results", path)
    assert f"{path}: line 1" in refused.remarks.replace("\n", "")


def test_a_run_against_another(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    results = perfect_results(kitti_folder, tmp_path / "results")
    worse = tmp_path / "worse"
    shutil.copytree(results, worse)
    for path in worse.iterdir():
        write_objects(path, read_objects(path)[:1])
    arguments = ("eval", "--data", kitti_folder, "--split", "all", "--results", results)
    done = perceive(*arguments, "--against", worse, "--samples", 20, "--seed", 3, "--json")
    assert done.status == 0, done.remarks
    comparison = json.loads(done.output)["comparison"]
    assert (comparison["samples"], comparison["seed"]) == (20, 3)
    assert comparison["runs"] == [str(results), str(worse)]
    row = next(entry for entry in comparison["measures"] if entry["measure"] == "AP 3D hard")
    value, other, difference = row["value"][0], row["other"][0], row["difference"][0]
    assert difference == pytest.approx(value - other)
    assert value > other
    printed = perceive(*arguments, "--against", worse, "--samples", 5).output
    assert "A - B" in printed
    (worse / "000003.txt").unlink()
    refused = perceive(*arguments, "--against", worse, "--missing", "skip")
    assert refused.status == 2
    assert "different frames (000003" in refused.remarks.replace("\n", " ")


def test_against_weights(perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path) -> None:
    results = perfect_results(kitti_folder, tmp_path / "results")
    arguments = ("--results", results, "--against", tiny_weights, "--samples", 3, "--json")
    done = perceive("eval", "--data", kitti_folder, *arguments)
    assert done.status == 0, done.remarks
    assert json.loads(done.output)["comparison"]["runs"] == [str(results), str(tiny_weights)]


def test_data_that_cannot_be_judged_so(perceive: Perceive, kitti_folder: Path, tmp_path: Path) -> None:
    results = perfect_results(kitti_folder, tmp_path / "results")
    done = perceive("eval", "--data", kitti_folder, "--results", results, "--protocol", "nuscenes")
    assert done.status == 2
    assert "needs nuScenes tables" in done.remarks.replace("\n", " ")
    root = write_nuscenes(tmp_path / "nuscenes")
    done = perceive("eval", "--data", root, "--split", "all", "--results", results, "--protocol", "kitti")
    assert done.status == 2
    assert "needs camera images" in done.remarks.replace("\n", " ")


def test_nuscenes_results(perceive: Perceive, tmp_path: Path, tiny_weights: Path) -> None:
    root = write_nuscenes(tmp_path / "nuscenes")
    data_set = open_data_set(root, having="labels")
    results = tmp_path / "results.json"
    perfect = [
        (frame, Detections(frame.boxes, np.full(len(frame.boxes), 0.5, np.float32), frame.labels))
        for frame in data_set
    ]
    judge_of(data_set).write(tmp_path, perfect)
    arguments = ("eval", "--data", root, "--split", "all", "--results", results)
    done = perceive(*arguments, "--out", tmp_path / "out", "--against", results, "--samples", 3)
    assert done.status == 0, done.remarks
    assert "NDS" in done.output
    record = json.loads((tmp_path / "out/metrics.json").read_text())
    assert record["frames"] == len(data_set)
    present = [entry for entry in record["classes"].values() if entry["labels"]]
    assert present
    for entry in present:
        assert entry["AP"] == pytest.approx(1)
        assert entry["errors"]["ATE"] == pytest.approx(0, abs=1e-4)
        assert entry["errors"]["AOE"] == pytest.approx(0, abs=1e-4)
    assert (tmp_path / "out/comparison.png").stat().st_size > 1000
    refused = perceive("eval", "--data", root, "--split", "all", "--weights", tiny_weights)
    assert refused.status == 2
    assert "not classes of nuScenes" in refused.remarks.replace("\n", " ")


def test_calibration(
    perceive: Perceive, kitti_folder: Path, tiny_config: DetectorConfig, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    every = replace(tiny_config.nms, score_threshold=0.0, report_thresholds={"Car": 0.3})
    save_weights(Network(replace(tiny_config, nms=every)), tmp_path / "raw.safetensors")
    arguments = ("eval", "--data", kitti_folder, "--split", "all", "--weights", tmp_path / "raw.safetensors")
    done = perceive(*arguments, "--calibration", "--out", tmp_path / "out")
    assert done.status == 0, done.remarks
    assert "Calibration of scores" in done.output
    assert (tmp_path / "out/reliability.png").read_bytes().startswith(b"\x89PNG")
    calibration = json.loads((tmp_path / "out/metrics.json").read_text())["calibration"]
    assert sum(entry["boxes"] for entry in calibration.values()) > 0
    refused = perceive(*arguments[:5], "--results", tmp_path / "out/results", "--calibration")
    assert refused.status == 2
    assert "detections.jsonl" in refused.remarks


def test_calibrated_scores(kitti_folder: Path, tiny_config: DetectorConfig, tmp_path: Path) -> None:
    """The same boxes in the order of their class, with mapped scores; thresholds move along."""
    torch.manual_seed(5)
    every = replace(tiny_config.nms, score_threshold=0.0, report_thresholds={"Car": 0.3})
    save_weights(Network(replace(tiny_config, nms=every)), tmp_path / "raw.safetensors")
    name = Detector.from_pretrained(tmp_path / "raw.safetensors")(
        open_data_set(kitti_folder)[0].cloud
    ).labels[0]
    maps = {name: (2.0, 1.0), "Car": (2.0, 1.0)}
    save_calibrated(tmp_path / "raw.safetensors", tmp_path / "once.safetensors", maps)
    raw = Detector.from_pretrained(tmp_path / "raw.safetensors")
    once = Detector.from_pretrained(tmp_path / "once.safetensors")
    threshold = once.config.nms.report_thresholds["Car"]
    assert threshold == pytest.approx(1 / (1 + np.exp(-2 * np.log(0.3 / 0.7) - 1)))
    cloud = open_data_set(kitti_folder)[0].cloud
    before, after = raw.reporting_everything()(cloud), once.reporting_everything()(cloud)
    assert len(before) == len(after) > 0
    assert (np.diff(after.scores) <= 0).all()
    for name in tiny_config.head.classes:
        rows = [[row for row, label in enumerate(found.labels) if label == name] for found in (before, after)]
        np.testing.assert_array_equal(before.boxes[rows[0]], after.boxes[rows[1]])
        scores = before.scores[rows[0]].astype(np.float64)
        if name in maps:
            scores = 1 / (1 + np.exp(-2 * np.log(scores / (1 - scores)) - 1))
        np.testing.assert_allclose(after.scores[rows[1]], scores, rtol=1e-6)
    assert len(maps) == len(tiny_config.head.classes)
    least = float(1 / (1 + np.exp(-2 * np.log(0.02 / 0.98) - 1)))
    strict = once.with_score_threshold(least)(cloud)
    assert len(strict) == len(raw.with_score_threshold(0.02)(cloud)) > 0
    save_calibrated(tmp_path / "once.safetensors", tmp_path / "twice.safetensors", {"Car": (0.5, -0.5)})
    undone = Detector.from_pretrained(tmp_path / "twice.safetensors")
    assert undone.config.nms.score_maps["Car"] == (1.0, 0.0)
    assert undone.config.nms.report_thresholds["Car"] == pytest.approx(0.3)


def test_names_and_range_of_other_data(
    perceive: Perceive, kitti_folder: Path, tiny_config: DetectorConfig, tmp_path: Path
) -> None:
    config = replace(tiny_config, nms=replace(tiny_config.nms, score_threshold=0.0))
    torch.manual_seed(5)
    save_weights(Network(config).eval(), tmp_path / "w.safetensors")
    arguments = (
        "eval",
        "--data",
        kitti_folder,
        "--split",
        "all",
        "--weights",
        tmp_path / "w.safetensors",
        "--protocol",
        "boxes",
    )
    plain, renamed = (
        json.loads(perceive(*arguments, *more, "--json").output)
        for more in ((), ("--rename", "Car=Pedestrian", "--rename", "Pedestrian=Car"))
    )
    # Every box counts for the other class.
    boxes, others = (
        {name: run["classes"][name]["detections"] for name in config.head.classes} for run in (plain, renamed)
    )
    assert boxes["Car"] + boxes["Pedestrian"] > 0
    assert (boxes["Car"], boxes["Pedestrian"]) == (others["Pedestrian"], others["Car"])
    near = json.loads(perceive(*arguments, "--range", "0,-2,-3,4,2,1", "--json").output)
    assert near["classes"] != plain["classes"]
    for more, message in (
        (("--rename", "Car"), "--rename must be CLASS=NAME such as Car=car, got 'Car'"),
        (("--rename", "car=Car"), "unknown class 'car'. Did you mean 'Car'?"),
        (("--rename", "Car=car"), "the labels name the class 'car' 'Car'. Remove --rename Car=car"),
        (("--range", "5"), "--range must be 'none' or six numbers"),
    ):
        done = perceive(*arguments, *more)
        assert done.status == 2
        assert message in done.remarks.replace("\n", " ")
