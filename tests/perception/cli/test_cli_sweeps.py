"""Commands give a detector that reads several sweeps the past scans of the drive."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perception.checkpoints.weights import load_weights, save_weights
from perception.config import DetectorConfig
from perception.detector import Detector
from perception.io import load_point_cloud
from perception.model.network import Network
from perception.scans.sweeps import SweepBuffer

Perceive = Callable[..., Any]
FRAMES = 3


@pytest.fixture(scope="module")
def weights(tiny_config: DetectorConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with three sweeps and boxes in every frame."""
    torch.manual_seed(5)
    nms = replace(tiny_config.nms, score_threshold=0.0)
    network = Network(replace(tiny_config, pillars=replace(tiny_config.pillars, sweeps=3), nms=nms))
    with torch.no_grad():
        network.head.heat.bias.fill_(-1.0)
        network.head.heat.weight.mul_(10.0)
    path = tmp_path_factory.mktemp("weights") / "sweeps.safetensors"
    save_weights(network, path)
    return path


@pytest.fixture
def poses(tmp_path: Path) -> Path:
    path = tmp_path / "poses.txt"
    path.write_text("".join(f"1 0 0 {0.4 * k} 0 1 0 0 0 0 1 0\n" for k in range(FRAMES)))
    return path


def records_of(out: Path, name: str = "detections.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def wanted_boxes(weights: Path, scans: Path) -> list[list[list[float]]]:
    """Boxes of each scan, merged in Python."""
    detector = Detector(load_weights(weights))
    sweeps, found = SweepBuffer(detector.config.pillars), []
    for k, path in enumerate(sorted(scans.iterdir())):
        pose = np.eye(4)
        pose[0, 3] = 0.4 * k
        found.append(detector(sweeps.merge(load_point_cloud(path), pose)).to_dict()["boxes"])
    return found


def test_detect_merges_scans_by_poses(
    perceive: Perceive, scans: Path, weights: Path, poses: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "out", ("--weights", weights, "--no-pictures", "--no-places")
    done = perceive("detect", scans, "--out", out, "--poses", poses, *options)
    assert done.status == 0
    boxes = [record["boxes"] for record in records_of(out)]
    assert boxes == wanted_boxes(weights, scans)
    assert all(len(each) > 3 for each in boxes)
    assert not any("sweeps" in text for record in records_of(out) for text in record["warnings"])
    # A run that resumes reads the scans before again.
    lines = (out / "detections.jsonl").read_text().splitlines(keepends=True)
    (out / "detections.jsonl").write_text(lines[0] + lines[1])
    assert perceive("detect", scans, "--out", out, "--poses", poses, *options, "--resume").status == 0
    assert [record["boxes"] for record in records_of(out)] == boxes


def test_without_poses_each_scan_comes_alone_with_a_warning(
    perceive: Perceive, scans: Path, weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = perceive("detect", scans, "--out", out, "--weights", weights, "--no-pictures")
    assert done.status == 0
    assert "reads 3 sweeps" in done.remarks
    detector = Detector(load_weights(weights))
    for record, path in zip(records_of(out), sorted(scans.iterdir()), strict=True):
        alone = replace(load_point_cloud(path), ages_s=np.zeros(len(load_point_cloud(path)), np.float32))
        assert record["boxes"] == detector(alone).to_dict()["boxes"]
        assert any("--poses FILE" in text for text in record["warnings"])


def test_track_and_live_merge_scans_by_poses(
    perceive: Perceive, scans: Path, weights: Path, poses: Path, tmp_path: Path
) -> None:
    wanted = wanted_boxes(weights, scans)
    out, options = tmp_path / "tracks", ("--weights", weights, "--poses", poses, "--no-pictures")
    assert perceive("track", scans, "--out", out, *options).status == 0
    assert [record["boxes"] for record in records_of(out, "boxes.jsonl")] == wanted
    lines = (out / "boxes.jsonl").read_text().splitlines(keepends=True)
    (out / "boxes.jsonl").write_text(lines[0])
    assert perceive("track", scans, "--out", out, *options, "--resume").status == 0
    assert [record["boxes"] for record in records_of(out, "boxes.jsonl")] == wanted
    alone = perceive("live", scans, "--replay", "--weights", weights, "--queue", 3, "--json")
    assert "reads 3 sweeps" in alone.remarks + alone.output
    out = tmp_path / "live"
    done = perceive(
        "live",
        scans,
        "--replay",
        "--weights",
        weights,
        "--poses",
        poses,
        "--queue",
        3,
        "--out",
        out,
        "--json",
    )
    assert done.status == 0
    assert "reads 3 sweeps" not in done.remarks + done.output


def test_several_processes_are_refused(
    perceive: Perceive, scans: Path, weights: Path, poses: Path, tmp_path: Path
) -> None:
    options = ("--out", tmp_path / "out", "--weights", weights, "--poses", poses, "--workers", 2)
    done = perceive("detect", scans, *options)
    assert done.status == 2
    assert "needs the scans in order" in done.remarks
