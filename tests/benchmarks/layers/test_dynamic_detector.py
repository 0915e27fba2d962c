"""The detector of the study: sparse layers in its place, the same result as the dense ones put back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

TINY = """
detector:
  name: tiny
  pillars: {channels: 16, range_m: [0.0, -10.24, -3.0, 20.48, 10.24, 1.0]}
  backbone: {kind: sparse, channels: [16, 16, 32], blocks: [1, 1, 1]}
  neck: {channels: 32, blocks: 1, out_channels: 32}
  head: {top_k: 10}
  refine: {proposals: 4}
"""


@pytest.fixture
def network(tmp_path: Path) -> Any:
    from perception.config import TrainConfig, load_config
    from perception.model.network import Network

    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    torch.manual_seed(0)
    return Network(load_config(TrainConfig, path).detector)


@pytest.fixture
def pillars(network: Any) -> Any:
    from perception.model.pillars import make_pillars

    cloud = torch.rand(300, 4) * torch.tensor([20.0, 20.0, 2.0, 1.0]) - torch.tensor([0.0, 10.0, 2.0, 0.0])
    return make_pillars([cloud], network.config.pillars)


@pytest.mark.parametrize("structure", ["unstructured", "fan-in", "block"])
def test_sparse_convolutions_train_and_go_back(load: Any, network: Any, pillars: Any, structure: str) -> None:
    layers, rows = load("layers.dynamic_detector_layers"), load("layers.dynamic_rows")
    row = rows.Row("rigl", structure, 0.8, 1)
    counted = layers.multiply_adds(network, pillars)
    assert set(counted) == set(layers.selected_convolutions(network))
    layers.make_detector_sparse(network, row, seed=0)
    found = rows.sparse_layers(network)
    kinds = {type(layer).__name__ for layer in found.values()}
    assert kinds == {"SparseTrainedConvolution", "RigLConv2d"}
    optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
    step, scheduler = rows.make_step(network, optimizer, row, steps=8, update_every=2, seed=0)
    network.train()
    before = {name: layer.cells.clone() for name, layer in found.items()}
    for _ in range(4):
        optimizer.zero_grad()
        maps = network.maps(pillars)
        (maps.heat_logits.square().mean() + maps.features.square().mean()).backward()
        step()
    assert scheduler.steps == 4
    moved = [name for name, layer in found.items() if not torch.equal(before[name], layer.cells)]
    # Of three blocks 30 % are none.
    assert len(moved) >= (len(found) / 3 if structure == "block" else len(found))
    network.eval()
    with torch.no_grad():
        sparse = network.maps(pillars)
        weights = {name: layer.mask.float().mean() for name, layer in found.items()}
        dense = layers.make_detector_dense(network).maps(pillars)
    assert not rows.sparse_layers(network)
    torch.testing.assert_close(sparse.heat_logits, dense.heat_logits)
    for name, share in weights.items():
        weight = network.get_submodule(name).weight
        # What is new is zero still; nothing is where no connection is.
        assert 0 < (weight != 0).float().mean() <= share
    network.fold()


def test_multiply_adds_of_a_full_grid_are_those_of_dense_layers(load: Any, network: Any) -> None:
    from perception.model.pillars import make_pillars

    layers = load("layers.dynamic_detector_layers")
    config = network.config.pillars
    rows, columns = config.grid_shape
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    cloud = torch.stack([x * 0.16 + 0.08, y * 0.16 - 10.16, 0 * x, 0 * x], dim=-1).reshape(-1, 4).float()
    counted = layers.multiply_adds(network, make_pillars([cloud], config))
    # Nine taps at every cell, but for those over the edge.
    inside = (3 * rows - 2) * (3 * columns - 2)
    name = next(name for name in counted if name.startswith("backbone.stages.0"))
    assert counted[name] == inside * 16 * 16
    assert counted["neck.out.conv"] == (rows // 4) * (columns // 4) * 9 * 32 * 32


@pytest.mark.slow
def test_the_detector_part_runs(
    load: Any, kitti_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "d.json"
    words = ["--detector", "--quick", "--data", str(kitti_directory), "--threads", "1", "--out", str(out)]
    bench = load("layers.dynamic_accuracy")
    assert bench.main([*words, "--methods", "dense", "rigl", "--structures", "unstructured"]) == 0
    values = json.loads(out.read_text())
    assert str(kitti_directory) not in out.read_text()
    dense, rigl = values["cases"]
    assert (dense["label"], rigl["label"]) == ("dense", "RigL")
    assert rigl["density"] == pytest.approx(0.1, abs=0.01)
    assert rigl["cost"] < 0.2
    for case in (dense, rigl):
        assert 0 <= case["measures"]["ap_moderate"]["mean"] <= 100
        assert case["measures"]["loss"]["mean"] > 0
    # A deadline in the past leaves nothing behind, and no error.
    run = bench._runs(bench._options(words))[0]._replace(deadline=1.0)
    with pytest.raises(load("layers.dynamic_detector").OutOfTimeError):
        bench.train_detector(run)
