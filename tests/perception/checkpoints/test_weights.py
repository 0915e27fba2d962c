"""Weights on disk: there and back, and every way a file can be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import perception.checkpoints.weights as weights_module
from perception.checkpoints.weights import load_weights, save_weights, shipped_weights
from perception.config import DetectorConfig, to_dict
from perception.errors import CheckpointError
from perception.model.network import Network

KEY = "sparsight.detector"


@pytest.fixture
def saved(tiny_network: Network, tmp_path: Path) -> Path:
    path = tmp_path / "saved.safetensors"
    save_weights(tiny_network, path)
    return path


def test_there_and_back(tiny_network: Network, saved: Path) -> None:
    loaded = load_weights(saved)
    assert loaded.config == tiny_network.config
    assert not loaded.training
    for name, value in tiny_network.state_dict().items():
        found = loaded.state_dict()[name]
        assert found.dtype == value.dtype
        expected = value.half().float() if value.is_floating_point() else value
        assert torch.equal(found, expected)
    stored = load_file(saved)
    assert {value.dtype for value in stored.values()} == {torch.float16, torch.int64}


def test_weights_have_the_rights_of_any_new_file(tiny_network: Network, tmp_path: Path) -> None:
    path = tmp_path / "new.safetensors"
    mask = os.umask(0o027)
    try:
        save_weights(tiny_network, path)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_folder_of_weights_names_the_file(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a folder, not a weights file; pass .*saved.safetensors"):
        load_weights(saved.parent)


def test_a_second_trip_changes_nothing(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    save_weights(load_weights(saved), again)
    first, second = load_file(saved), load_file(again)
    assert all(torch.equal(first[name], second[name]) for name in first)


def overwrite(path: Path) -> None:
    path.write_bytes(b"these are not weights" * 100)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def truncate_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [overwrite, truncate, truncate_header, make_empty])
def test_damaged_files(saved: Path, damage: Callable[[Path], None]) -> None:
    damage(saved)
    with pytest.raises(CheckpointError, match=r"saved\.safetensors: not a safetensors file"):
        load_weights(saved)


def rewrite(
    path: Path, *, metadata: dict[str, str] | None, change: Callable[..., None] | None = None
) -> None:
    tensors = load_file(path)
    if change is not None:
        change(tensors)
    save_file(tensors, str(path), metadata=metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "no detector configuration"),
        ({"other": "x"}, "no detector configuration"),
        ({KEY: "{not json"}, "invalid stored"),
        ({KEY: "[1]"}, "invalid stored"),
        ({KEY: '{"pillars": {"colour": 1}}'}, r"unknown field pillars\.colour"),
        ({KEY: '{"nms": {"iou": 7}}'}, r"nms\.iou"),
    ],
)
def test_metadata_that_cannot_be_used(saved: Path, metadata: dict[str, str] | None, message: str) -> None:
    rewrite(saved, metadata=metadata)
    with pytest.raises(CheckpointError, match=message):
        load_weights(saved)


def test_weights_of_another_configuration(saved: Path, tiny_config: DetectorConfig) -> None:
    wider = replace(tiny_config, neck=replace(tiny_config.neck, channels=24))
    with pytest.raises(CheckpointError, match=r"another configuration: .* has shape \(.*tion has \("):
        load_weights(saved, config=wider)
    deeper = replace(tiny_config, neck=replace(tiny_config.neck, blocks=3))
    with pytest.raises(CheckpointError, match=r"another configuration: \d+ tensors missing"):
        load_weights(saved, config=deeper)
    dense = replace(tiny_config, backbone=replace(tiny_config.backbone, kind="dense"))
    with pytest.raises(CheckpointError, match="another configuration"):
        load_weights(saved, config=dense)
    rewrite(saved, metadata={KEY: json.dumps(to_dict(wider))})
    with pytest.raises(CheckpointError, match="another configuration"):
        load_weights(saved)


def test_another_configuration_that_fits(saved: Path, tiny_config: DetectorConfig) -> None:
    other = replace(tiny_config, nms=replace(tiny_config.nms, score_threshold=0.5))
    assert load_weights(saved, config=other).config.nms.score_threshold == 0.5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite(saved: Path, tiny_config: DetectorConfig, bad: float) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.heat.bias"][0] = bad

    rewrite(saved, metadata={KEY: json.dumps(to_dict(tiny_config))}, change=change)
    with pytest.raises(CheckpointError, match=r"damaged.*head\.heat\.bias"):
        load_weights(saved)


def test_unknown_name_lists_the_shipped_ones(
    monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"no weights 'no-such'.*shipped names are: "):
        load_weights("no-such")
    monkeypatch.setattr(weights_module, "WEIGHTS_DIRECTORY", tmp_path)
    assert shipped_weights() == ["saved"]
    assert load_weights("saved").config.name == "tiny"
    with pytest.raises(CheckpointError, match="shipped names are: saved"):
        load_weights(tmp_path / "missing.safetensors")


@pytest.mark.parametrize("bad", [float("nan"), 1e6])
def test_values_that_half_precision_cannot_hold(tiny_network: Network, tmp_path: Path, bad: float) -> None:
    tiny_network.encoder.points.norm.running_var[0] = bad
    with pytest.raises(ValueError, match=r"encoder\.points\.norm\.running_var"):
        save_weights(tiny_network, tmp_path / "bad.safetensors")
    assert not (tmp_path / "bad.safetensors").exists()


def test_a_folded_network_is_not_saved(tiny_network: Network, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folded"):
        save_weights(tiny_network.fold(), tmp_path / "folded.safetensors")


@pytest.mark.parametrize(
    "name", shipped_weights() or [pytest.param("", marks=pytest.mark.skip("none shipped"))]
)
def test_shipped_weights_load(name: str) -> None:
    path = weights_module.WEIGHTS_DIRECTORY / f"{name}.safetensors"
    assert path.stat().st_size < 10e6
    assert load_weights(name).config.name == name
