"""``perceive train`` on a folder of one's own data: it ends with the protocol of boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_scene import describe_folder

from perception.cli.train.command import resolve_config
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


@pytest.mark.usefixtures("one_thread")
def test_weights_of_other_classes_are_named(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    judged = perceive("eval", "--data", folder, "--weights", tiny_weights)
    assert judged.status == 0
    assert "no class matches, so every AP is 0. Add --rename, such as --rename Car=" in judged.remarks
    renamed = perceive("eval", "--data", folder, "--weights", tiny_weights, "--rename", "Car=pallet")
    assert "no class matches" not in renamed.remarks


@pytest.mark.parametrize(
    ("names", "range_m", "words"),
    [
        ({"pallet": "pallet"}, [-4, -4, 5, 4, 4, 8], "[range] The range of the config"),
        ({"pallet": "Pallets", "forklift": "forklift"}, None, "'Pallets', which the config calls 'pallet'"),
    ],
)
def test_what_the_doctor_calls_an_error_is_not_trained_on(
    names: dict[str, str],
    range_m: list[float] | None,
    words: str,
    perceive: Perceive,
    tiny_config: DetectorConfig,
    tmp_path: Path,
) -> None:
    """Nothing would be learnt of boxes that lie outside the range or have another name."""
    detector = tiny_config.with_classes(["pallet", "forklift"])
    detector = detector if range_m is None else detector.with_range(range_m)
    config = replace(load_config(TrainConfig, resolve_config("smoke")), detector=detector, steps=1)
    save_config(config, tmp_path / "train.yaml")
    folder = describe_folder(tmp_path, classes=names)
    arguments = ("train", tmp_path / "train.yaml", "--data", folder, "--out", tmp_path / "run")
    refused = perceive(*arguments)
    assert refused.status == 2
    assert words in refused.remarks
    assert "--no-check" in refused.remarks
    assert not (tmp_path / "run").exists()
    assert perceive(*arguments, "--no-check").status == 0
