"""``perceive train`` on a folder of one's own data: it ends with the protocol of boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_scene import describe_folder

from perception.cli.train import resolve_config
from perception.config import DetectorConfig, TrainConfig, load_config, save_config

Perceive = Callable[..., Any]


@pytest.mark.usefixtures("one_thread")
def test_own_classes_are_trained_and_judged(
    perceive: Perceive, tiny_config: DetectorConfig, tmp_path: Path
) -> None:
    detector = tiny_config.with_classes(["pallet", "forklift"])
    config = replace(load_config(TrainConfig, resolve_config("smoke")), detector=detector, steps=2)
    save_config(config, tmp_path / "train.yaml")
    folder = describe_folder(tmp_path, scans={"path": "scans", "sensor_height_m": 1.7})
    done = perceive("train", tmp_path / "train.yaml", "--data", folder, "--out", tmp_path / "run")
    assert done.status == 0
    lines = [line for line in done.output.splitlines() if " AP " in line]
    assert [line.partition(" ")[0] for line in lines] == ["pallet", "forklift"]
    weights = tmp_path / "run/weights.safetensors"
    judged = perceive("eval", "--data", folder, "--weights", weights, "--json")
    assert judged.status == 0
    assert '"protocol": "boxes"' in judged.output
