"""The benchmark of levels: what its result holds, its candidates, and the tables made from it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perception.budget import default_levels
from perception.checkpoints.weights import load_weights
from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration, write_objects


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    """Two scans of a street with a car, labelled, in a KITTI folder."""
    root = tmp_path / "kitti"
    for folder in ("training/velodyne_reduced", "training/label_2", "training/calib", "ImageSets"):
        (root / folder).mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in ("000000", "000001"):
        road = generator.uniform([5, -10, -1.75, 0], [30, 10, -1.65, 1], (2000, 4))
        car = generator.uniform([12, -1, -1.6, 0], [16, 1, -0.2, 1], (600, 4))
        np.concatenate([road, car]).astype("<f4").tofile(root / f"training/velodyne_reduced/{name}.bin")
        calibration = CameraCalibration.default()
        write_calibration(root / f"training/calib/{name}.txt", calibration)
        box = np.array([[14, 0, -0.9, 4, 2, 1.4, 0]], np.float32)
        write_objects(
            root / f"training/label_2/{name}.txt", objects_from_boxes(box, ["Car"], None, calibration)
        )
    (root / "ImageSets/val.txt").write_text("000000\n000001\n")
    return root


@pytest.mark.slow
def test_result_holds_levels_and_budgets(load: Any, kitti: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["--data", str(kitti), "--quick", "--threads", "1", "--out", str(out)]
    assert load("detector.levels").main(arguments) == 0
    values = json.loads(out.read_text())
    assert str(tmp_path) not in out.read_text()
    assert (values["schema"], values["benchmark"]) == (1, "levels")
    assert values["frames"]["names"] == ["000000", "000001"]
    names = [level.name for level in default_levels(fast=False)]
    assert [case["name"] for case in values["cases"]] == names
    for case in values["cases"]:
        assert case["default"] is True
        assert case["time"]["count"] == len(case["samples_ms"]) == 2
        assert set(case["precision"]) == {"car_3d", "car_3d_loose", "cyclist_3d"}
    assert values["cases"][0]["level"] == {}
    assert values["cases"][0]["of_all"]["median"] == 1.0
    for row in values["budgets"]:
        assert sum(row["frames"].values()) == 2
        assert 0 <= row["within"] <= 1
    assert values["budgets"][-1]["warnings"] == 1
    assert values["budgets"][-1]["within"] == 0


def test_candidates_have_names_of_their_own() -> None:
    level_candidates = importlib.import_module("benchmarks.detector.level_candidates")
    found = level_candidates.candidates()
    names = [level.name for level in found]
    assert len(set(names)) == len(names)
    assert {*default_levels(fast=False), *default_levels(fast=True)} <= set(found)
    facts = level_candidates.level_facts(found[0])
    assert facts == {}
    assert all(level_candidates.level_facts(level) for level in found[1:])


def test_the_weakest_taps_become_zero() -> None:
    level_candidates = importlib.import_module("benchmarks.detector.level_candidates")
    before = load_weights("pointpillars-kitti").state_dict()
    after = level_candidates.without_taps(load_weights("pointpillars-kitti"), 2).state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(changed) >= 12
    for name in changed:
        assert name.startswith("backbone.")
        norms = before[name].square().sum(dim=(0, 3)).flatten()
        zero = after[name].square().sum(dim=(0, 3)).flatten() == 0
        assert int(zero.sum()) == 2
        assert norms[zero].max() <= norms[~zero].min()
