"""Labels of a drive by what a memory knows of the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from perception.checkpoints.weights import load_weights, save_weights
from perception.data import open_data_set
from perception.detector import Detector
from perception.train.data.evidence import GROUP


@pytest.fixture
def _declared_memory(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point as pyproject.toml declares it, whatever is installed."""
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf'\[project\.entry-points\."{re.escape(GROUP)}"\]\n(\w+) = "(.+)"', text)
    assert found is not None
    entry = EntryPoint(found[1], found[2], GROUP)
    monkeypatch.setattr("perception.extensions.entry_points", lambda group: [entry] if group == GROUP else [])


@pytest.mark.usefixtures("_declared_memory")
def test_known_objects_become_labels(
    perceive: Callable[..., Any], kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    poses = tmp_path / "poses.txt"
    poses.write_text("1 0 0 500 0 1 0 0 0 0 1 0\n" * 4)
    # Random weights are sure of nothing, so these report everything.
    network = load_weights(tiny_weights)
    network.config = replace(network.config, nms=replace(network.config.nms, score_threshold=1e-4))
    save_weights(network, weights := tmp_path / "weights.safetensors")
    frames = open_data_set(kitti_folder)
    first = Detector.from_pretrained(weights).reporting_everything()(frames[0].cloud)
    x, y, z = first.boxes[0, :3].tolist()
    with MemoryStore.open(tmp_path / "store", dim=8) as store:
        store.add(
            [
                Memory(
                    time_ns=1,
                    map_id="yard",
                    label=first.labels[0],
                    position=(x + 500, y, z),
                    confidence=0.9,
                    count=40,
                )
            ]
        )
    # A score of 1 that no detection reaches: only the memory makes labels.
    drive = (
        "pseudo-label",
        kitti_folder,
        "--weights",
        weights,
        "--poses",
        poses,
        "--score",
        1,
        "--doubt",
        0,
    )
    labels = {}
    for name, more in {
        "without": (),
        "with": ("--memory", tmp_path / "store", "--map", "yard"),
        "another map": ("--memory", tmp_path / "store"),
    }.items():
        done = perceive(*drive, *more, "--out", tmp_path / name)
        assert done.status == 0, done.remarks
        labels[name] = sum(len(frame.labels) for frame in open_data_set(tmp_path / name, "train"))
    assert labels["without"] == labels["another map"] == 0
    assert labels["with"] >= 1
    wrong = perceive(*drive, "--memory", tmp_path / "nothing", "--out", tmp_path / "other")
    assert wrong.status == 2
    assert "holds no store" in wrong.remarks.replace("\n", " ")
    assert not (tmp_path / "nothing").exists()
