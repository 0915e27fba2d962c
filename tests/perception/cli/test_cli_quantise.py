"""``perceive quantise``: weights with ranges for int8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from perception import Detector
from perception.checkpoints.compression import compress_network, save_compressed_weights
from perception.checkpoints.ranges import RANGES_KEY, measure_ranges
from perception.checkpoints.weights import load_weights, resolve_weights, save_quantised, save_weights
from perception.errors import CheckpointError
from perception.model.network import Network
from sparse_core.kernels import native

Perceive = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def plain(tiny_network: Network, tmp_path: Path) -> Path:
    save_weights(tiny_network, tmp_path / "plain.safetensors")
    return tmp_path / "plain.safetensors"


@pytest.fixture
def compressed(tiny_network: Network, tmp_path: Path) -> Path:
    packed = compress_network(tiny_network.fold(), "int8")
    return save_compressed_weights(packed, tiny_network.config, tmp_path / "packed.safetensors")


def clouds_of(scans: Path) -> list[torch.Tensor]:
    files = sorted(scans.glob("*.bin"))
    return [torch.from_numpy(np.fromfile(file, np.float32).reshape(-1, 4)) for file in files]


@pytest.mark.parametrize("kind", ["plain", "compressed"])
def test_ranges_join_the_file(
    perceive: Perceive, scans: Path, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    before, after = request.getfixturevalue(kind), tmp_path / "int8.safetensors"
    assert load_weights(before).ranges is None
    done = perceive("quantise", scans, "--weights", before, "--out", after)
    assert done.status == 0, done.remarks
    assert "from 3 scans" in done.output
    network = load_weights(after)
    expected = load_weights(before)
    assert network.ranges == pytest.approx(measure_ranges(expected.fold(), clouds_of(scans)), rel=1e-5)
    assert network.config == expected.config
    stored, copied = load_file(before), load_file(after)
    assert stored.keys() == copied.keys()
    assert all(torch.equal(stored[name], copied[name]) for name in stored)
    if native.compiler() is not None:
        assert Detector.from_pretrained(after, precision="int8").precision == "int8"


def test_some_scans_of_all(perceive: Perceive, plain: Path, scans: Path, tmp_path: Path) -> None:
    after = tmp_path / "int8.safetensors"
    done = perceive("quantise", scans, "--weights", plain, "--out", after, "--scans", 1)
    assert "from 1 scans" in done.output
    first = measure_ranges(load_weights(plain).fold(), clouds_of(scans)[:1])
    assert load_weights(after).ranges == pytest.approx(first, rel=1e-5)
    refused = perceive("quantise", scans, "--weights", plain, "--out", after, "--scans", 0)
    assert refused.status == 2
    assert "--scans must be at least 1, got 0" in refused.remarks


def test_the_embedding_head_comes_along(tmp_path: Path) -> None:
    ranges = load_weights("pointpillars-kitti").ranges
    assert ranges is not None
    save_quantised("pointpillars-kitti", tmp_path / "copy.safetensors", ranges)
    copied = load_weights(tmp_path / "copy.safetensors")
    assert copied.embedding is not None
    assert copied.ranges == ranges


def test_damaged_ranges_name_the_file(plain: Path, tmp_path: Path) -> None:
    with safe_open(str(plain), framework="pt") as stored:
        header = stored.metadata()
    damaged = tmp_path / "damaged.safetensors"
    save_file(load_file(plain), damaged, metadata={**header, RANGES_KEY: '{"encoder": 1.0}'})
    with pytest.raises(CheckpointError, match=r"damaged.safetensors: int8 ranges of other weights"):
        load_weights(damaged)


@pytest.mark.parametrize("name", ["pointpillars-kitti", "pointpillars-kitti-2of4-int8"])
def test_shipped_weights_have_ranges(name: str) -> None:
    assert resolve_weights(name).is_file()
    assert load_weights(name).ranges is not None
