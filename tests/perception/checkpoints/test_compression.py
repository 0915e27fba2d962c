"""Compressed detector files: there and back, and every way a file can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from perception import Detector
from perception.checkpoints.compression import (
    INNER,
    PATTERN,
    compress_network,
    inner_layers,
    kept_masks,
    run_every_layer,
    save_compressed_weights,
)
from perception.checkpoints.weights import COMPRESSED_FORMAT, load_weights, save_weights
from perception.config import DetectorConfig
from perception.errors import CheckpointError
from perception.model.network import Network
from perception.train.data.frames import TrainingFrame
from sparse_core.compression import prune_in_one_pass
from sparse_core.nm.packing.files import FORMAT


@pytest.fixture
def packed(tiny_network: Network, tmp_path: Path) -> Path:
    tiny_network.fold()
    return save_compressed_weights(
        compress_network(tiny_network, "int8"), tiny_network.config, tmp_path / "packed.safetensors"
    )


def test_there_and_back(tiny_network: Network, packed: Path, street: Callable[[int], TrainingFrame]) -> None:
    loaded = load_weights(packed)
    assert loaded.config == tiny_network.config
    assert not loaded.training
    assert not any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in loaded.modules())
    inner = {f"{name}.weight" for name in inner_layers(loaded)}
    for name, value in tiny_network.state_dict().items():
        found = loaded.state_dict()[name]
        if name not in inner:
            assert torch.equal(found, value.half().float())
            continue
        kept = found != 0
        # Rounded by half of a step of 1/127 of the largest value at most; about half of the values are left.
        assert float((found - value)[kept].abs().max()) <= float(value.abs().max()) / 250
        assert kept.float().mean() <= 0.55
    assert kept_masks(loaded) is not None
    points = street(0).points
    first, second = Detector.from_pretrained(packed)(points), Detector(loaded)(points)
    assert np.array_equal(first.boxes, second.boxes)


def test_the_kind_of_file_has_one_name() -> None:
    assert COMPRESSED_FORMAT == FORMAT


def test_a_name_of_its_own(tiny_network: Network, tmp_path: Path) -> None:
    model = compress_network(tiny_network.fold(), "codebook4", pattern=None)
    path = save_compressed_weights(model, tiny_network.config, tmp_path / "small.safetensors", name="small")
    assert load_weights(path).config == replace(tiny_network.config, name="small")


def test_masks_are_exact_or_none(tiny_network: Network, packed: Path) -> None:
    assert kept_masks(tiny_network) is None
    masks = kept_masks(load_weights(packed))
    assert masks is not None
    assert masks.keys() == inner_layers(tiny_network).keys()
    mask = masks["neck.blocks.0.first.conv"].permute(0, 2, 3, 1).reshape(-1, 4)
    assert torch.equal(mask.sum(dim=1), torch.full((len(mask),), 2))


# Small scans are few rows to calibrate with.
@pytest.mark.filterwarnings("ignore::sparse_core.nm.CalibrationWarning")
@pytest.mark.parametrize("folded", [False, True])
def test_every_layer_is_reached(
    tiny_network: Network, street: Callable[[int], TrainingFrame], folded: bool
) -> None:
    network = tiny_network.fold() if folded else tiny_network
    clouds = [torch.from_numpy(street(number).points) for number in range(2)]
    report = prune_in_one_pass(network, lambda: run_every_layer(network, clouds), PATTERN, select=INNER)
    assert report.masks.keys() == inner_layers(network).keys()
    masks = kept_masks(network)
    assert masks is not None


def test_batch_norms_must_be_folded(tiny_network: Network) -> None:
    with pytest.raises(ValueError, match="has batch norms"):
        compress_network(tiny_network)


def test_a_compressed_network_is_not_saved_as_trained(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folded"):
        save_weights(load_weights(packed), tmp_path / "plain.safetensors")


def rewrite(
    path: Path,
    change_header: Callable[[dict[str, str]], None] = lambda header: None,
    change_tensors: Callable[[dict[str, torch.Tensor]], None] = lambda tensors: None,
) -> None:
    with safe_open(str(path), framework="pt") as stored:
        header = dict(stored.metadata())
    tensors = load_file(path)
    change_header(header)
    change_tensors(tensors)
    save_file(tensors, str(path), metadata=header)


def edit(field: str, value: str) -> Callable[[dict[str, str]], None]:
    return lambda header: header.update({field: value})


@pytest.mark.parametrize("kept", [0, 50, 5000])
def test_files_cut_off(packed: Path, kept: int) -> None:
    packed.write_bytes(packed.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"packed\.safetensors: not a safetensors file"):
        load_weights(packed)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", "99", "version is '99', this release reads '1'"),
        ("layers", "{", "layers is missing or not JSON"),
        ("layers", "[]", "layers must be a JSON object"),
        ("extra", "", "extra is missing or not JSON"),
        ("extra", "{}", "no detector configuration"),
        ("extra", '{"detector": 3}', "invalid stored configuration"),
        ("extra", '{"detector": {"colour": 1}}', "unknown field colour"),
        ("extra", '{"detector": {"nms": {"iou": 7}}}', r"nms\.iou"),
        ("extra", '{"detector": {}}', "weights of another configuration"),
        ("format", "sparsight-merged", "no detector configuration"),
    ],
)
def test_headers_that_cannot_be_used(packed: Path, field: str, value: str, message: str) -> None:
    rewrite(packed, edit(field, value))
    with pytest.raises(CheckpointError, match=rf"packed\.safetensors: .*{message}"):
        load_weights(packed)


def test_damaged_values(packed: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.box_middle.weight@values"][0, 0] ^= 1

    rewrite(packed, change_tensors=change)
    with pytest.raises(CheckpointError, match=r"layer head\.box_middle: its checksum"):
        load_weights(packed)


@pytest.mark.parametrize("part", ["values", "index", "scale"])
def test_a_part_is_missing(packed: Path, part: str) -> None:
    rewrite(packed, change_tensors=lambda tensors: tensors.pop(f"head.box_middle.weight@{part}"))
    with pytest.raises(CheckpointError, match=rf"layer head\.box_middle: .*{part}"):
        load_weights(packed)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_other_tensors_that_are_not_finite(packed: Path, bad: float) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.heat.bias"][0] = bad

    rewrite(packed, change_tensors=change)
    with pytest.raises(CheckpointError, match=r"head\.heat\.bias has NaN"):
        load_weights(packed)


def test_another_configuration(packed: Path, tiny_config: DetectorConfig) -> None:
    wider = replace(tiny_config, neck=replace(tiny_config.neck, channels=24))
    with pytest.raises(CheckpointError, match=r"another configuration: .*'\S+' has shape"):
        load_weights(packed, config=wider)
    deeper = replace(tiny_config, neck=replace(tiny_config.neck, blocks=3))
    with pytest.raises(CheckpointError, match=r"another configuration: .* \d+ tensors missing"):
        load_weights(packed, config=deeper)
    other = replace(tiny_config, nms=replace(tiny_config.nms, score_threshold=0.5))
    assert load_weights(packed, config=other).config.nms.score_threshold == 0.5
    with safe_open(str(packed), framework="pt") as stored:
        assert json.loads(stored.metadata()["extra"])["detector"]["name"] == tiny_config.name
