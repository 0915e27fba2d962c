"""A small detector and small made-up scenes, shared by the tests of the detector, training and commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from perception.checkpoints.weights import save_weights
from perception.config import DetectorConfig, from_dict
from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration, write_objects
from perception.model.network import Network
from perception.train.data.frames import TrainingFrame

CLASSES = ("Car", "Pedestrian")
SIZES_M = np.array([[3.9, 1.6, 1.5], [0.8, 0.6, 1.7]])
GROUND_M = -1.7
CURVES = "perception.train.curves"


@pytest.fixture(scope="module", autouse=True)
def _no_curves() -> Iterator[None]:
    """Training draws no curves, which takes longer than a tiny training; ``drawn_curves`` lets it."""
    stub = ModuleType(CURVES)
    vars(stub)["plot_curves"] = lambda *_, **__: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, CURVES, stub)
        yield


@pytest.fixture
def drawn_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training draws its curves."""
    monkeypatch.delitem(sys.modules, CURVES)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads cost more than they bring on networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_config() -> DetectorConfig:
    """16 m x 16 m, 64 x 64 pillars, 16 channels, every stage present."""
    return from_dict(
        DetectorConfig,
        {
            "name": "tiny",
            "pillars": {"range_m": [0, -8, -3, 16, 8, 1], "pillar_size_m": 0.25, "channels": 16},
            "backbone": {"channels": [16, 16, 16], "blocks": [1, 1, 1]},
            "neck": {"channels": 16, "blocks": 1, "out_channels": 16},
            "head": {"classes": list(CLASSES), "top_k": 20, "channels": 16},
            "refine": {"proposals": 8, "channels": [16, 16], "iterations": 2},
        },
    )


@pytest.fixture
def tiny_network(tiny_config: DetectorConfig) -> Network:
    """Random weights, and norms with statistics of their own, so that nothing is the identity."""
    torch.manual_seed(3)
    network = Network(tiny_config)
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            torch.nn.init.normal_(part.running_mean, std=0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(part.weight, 0.7, 1.3)
            torch.nn.init.normal_(part.bias, std=0.1)
    return network.eval()


@pytest.fixture(scope="session")
def street() -> Callable[[int], TrainingFrame]:
    """A frame by number: flat ground, two cars and two pedestrians covered with points, none overlapping."""

    def make(seed: int) -> TrainingFrame:
        random = np.random.default_rng(seed)
        ground = random.uniform([0.5, -8, 0, 0], [16, 8, 0.04, 0.2], (1200, 4))
        ground[:, 2] += GROUND_M
        spots = np.array([[x, y] for x in (4.5, 11.5) for y in (-4.5, 4.5)])
        spots = random.permutation(spots) + random.uniform(-0.5, 0.5, (4, 2))
        labels = np.array([0, 0, 1, 1])
        sizes = SIZES_M[labels] * random.uniform(0.95, 1.05, (4, 3))
        heights = GROUND_M + sizes[:, 2:] / 2
        yaw = random.uniform(-np.pi, np.pi, (4, 1))
        boxes = np.hstack([spots, heights, sizes, yaw]).astype(np.float32)
        clusters = [_surface(box, 150, random) for box in boxes]
        points = np.concatenate([ground, *clusters]).astype(np.float32)
        return TrainingFrame(f"{seed:06d}", points, boxes, labels.astype(np.int64))

    return make


def _surface(box: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Points a little inside the faces of a box: (count, 4)."""
    local = random.uniform(-0.5, 0.5, (count, 3))
    axis = random.integers(0, 3, count)
    local[np.arange(count), axis] = np.sign(local[np.arange(count), axis]) * 0.5
    local *= box[3:6] * 0.98
    cosine, sine = np.cos(box[6]), np.sin(box[6])
    turned = local[:, :2] @ np.array([[cosine, sine], [-sine, cosine]])
    return np.column_stack([turned + box[:2], local[:, 2] + box[2], random.uniform(0.3, 0.9, count)])


@pytest.fixture(scope="session")
def kitti_folder(street: Callable[[int], TrainingFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four streets in KITTI's layout, three to train on and one to validate. Copy it before changing it."""
    root = tmp_path_factory.mktemp("streets")
    for name in ("training/velodyne", "training/label_2", "training/calib", "ImageSets"):
        (root / name).mkdir(parents=True)
    calibration = CameraCalibration.default()
    for seed in range(4):
        frame = street(seed)
        frame.points.astype("<f4").tofile(root / f"training/velodyne/{frame.frame_id}.bin")
        write_calibration(root / f"training/calib/{frame.frame_id}.txt", calibration)
        names = [CLASSES[label] for label in frame.labels]
        objects = objects_from_boxes(frame.boxes, names, np.ones(len(names), np.float32), calibration)
        labels = [replace(entry, truncated=0.0, occluded=0, score=None) for entry in objects]
        write_objects(root / f"training/label_2/{frame.frame_id}.txt", labels)
    (root / "ImageSets/train.txt").write_text("000000\n000001\n000002\n")
    (root / "ImageSets/val.txt").write_text("000003\n")
    return root


@pytest.fixture(scope="session")
def tiny_weights(tiny_config: DetectorConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with random weights."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_weights(Network(tiny_config), path)
    return path
