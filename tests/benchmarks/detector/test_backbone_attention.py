"""Attention in the backbone: against dense attention, and the detector that has it or has none of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from perception import Detector
from perception.config import DetectorConfig, from_dict, to_dict
from perception.config.backbone import BACKBONES
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.registry import KINDS, make_network

CHANNELS, WINDOW, GROUP = 32, 3, 16
#: Cells of each: groups that are not filled, one that is, one cell, a frame of nothing.
FRAMES = [(37, 16), (1,), (53,), (16,), (5, 0, 40), (0, 9)]


@pytest.fixture
def stage(load: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with its detector in the table meanwhile."""
    module = load("detector.attended_backbone")
    registered(module, monkeypatch)
    return module


def registered(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the detector until the end of the test."""
    for table in (KINDS, BACKBONES):
        monkeypatch.setitem(table, module.KIND, None)  # type: ignore[arg-type]
    module.register()


TINY = from_dict(
    DetectorConfig,
    {
        "pillars": {"range_m": [0, -8, -3, 16, 8, 1], "pillar_size_m": 0.25, "channels": 16},
        "backbone": {"channels": [16, 16, 16], "blocks": [1, 1, 1]},
        "neck": {"channels": CHANNELS, "blocks": 1, "out_channels": 16},
        "head": {"top_k": 20, "channels": 16},
        "nms": {"score_threshold": 0.0},
        "refine": {"proposals": 8, "channels": [16, 16]},
    },
)


def street() -> NDArray[np.float32]:
    """Flat ground and two heaps of points."""
    random = np.random.default_rng(0)
    ground = random.uniform([0, -8, -1.8, 0], [16, 8, -1.7, 1], (1500, 4))
    heaps = [random.normal([*at, -1, 0.5], [0.8, 0.4, 0.3, 0.1], (200, 4)) for at in ((5, 3), (11, -4))]
    return np.concatenate([ground, *heaps]).astype(np.float32)


def attended(**attention: int) -> DetectorConfig:
    values = to_dict(TINY)
    values["backbone"] |= {
        "kind": "attended",
        "attention": {"heads": 2, "window": 4, "group": 16, **attention},
    }
    return from_dict(DetectorConfig, values)


def cells_of(counts: tuple[int, ...], *, seed: int = 0) -> Tensor:
    """Occupied cells of frames of 12 x 20, each once, in a random order."""
    random = np.random.default_rng([seed, *counts])
    rows = []
    for frame, count in enumerate(counts):
        places = random.choice(12 * 20, count, replace=False)
        rows.append(np.stack([np.full(count, frame), places // 20, places % 20], 1))
    cells = np.concatenate(rows)
    return torch.from_numpy(random.permutation(cells)).int()


def trained(stage: Any, *, odd: bool, seed: int = 0) -> Any:
    """A block that is no identity."""
    torch.manual_seed(seed)
    config = stage.AttentionConfig(heads=2, window=WINDOW, group=GROUP, hidden=24)
    block = stage.CellAttention(CHANNELS, config, odd=odd)
    for layer in (block.out, block.down):
        torch.nn.init.normal_(layer.weight, std=0.3)
    return block


def dense(block: Any, rows: Tensor, cells: Tensor) -> Tensor:
    """What a block computes, cell by cell: positions, groups and attention written down once more."""
    shift = WINDOW // 2 if block.odd else 0
    group: list[tuple[int, int]] = [(0, 0)] * len(cells)
    listed = [tuple(cell) for cell in cells.tolist()]
    for frame in {cell[0] for cell in listed}:

        def place(number: int) -> tuple[int, ...]:
            row, column = listed[number][1] + shift, listed[number][2] + shift
            first, second = (column, row) if block.odd else (row, column)
            return first // WINDOW, second // WINDOW, first % WINDOW, second % WINDOW

        members = sorted((number for number, cell in enumerate(listed) if cell[0] == frame), key=place)
        for rank, number in enumerate(members):
            group[number] = (frame, rank // GROUP)
    same = torch.tensor([[one == other for other in group] for one in group])
    q, k, v = block.inputs(block.attention_norm(rows)).unflatten(1, (3, 2, -1)).unbind(1)

    def as_complex(heads: Tensor) -> Tensor:
        quarter = heads.shape[2] // 4
        speeds = torch.tensor([16.0 ** -(i / quarter) for i in range(quarter)])
        angles = torch.cat([cells[:, 1:2] * speeds, cells[:, 2:] * speeds], 1)
        first, second = heads.chunk(2, 2)
        return torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)[:, None]

    scores = torch.einsum("nhd,mhd->hnm", as_complex(q), as_complex(k).conj()).real / q.shape[2] ** 0.5
    weights = scores.masked_fill(~same, -torch.inf).softmax(2)
    rows = rows + block.out(torch.einsum("hnm,mhd->nhd", weights, v).flatten(1))
    made: Tensor = rows + block.down(F.gelu(block.up(block.hidden_norm(rows))))
    return made


@pytest.mark.parametrize("counts", FRAMES, ids=str)
@pytest.mark.parametrize("odd", [False, True])
def test_a_block_is_dense_attention_in_groups(stage: Any, counts: tuple[int, ...], odd: bool) -> None:
    block, cells = trained(stage, odd=odd), cells_of(counts)
    rows = torch.randn(len(cells), CHANNELS, requires_grad=True)
    weight = torch.randn(len(cells), CHANNELS)
    found, gradients = [], []
    for made in (block(rows, cells, len(counts)), dense(block, rows, cells)):
        found.append(made)
        gradients.append(torch.autograd.grad((made * weight).sum(), [rows, *block.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert not torch.equal(found[0], rows)


@pytest.mark.parametrize("blocks", [0, 2])
def test_before_training_boxes_are_those_without(stage: Any, blocks: int) -> None:
    torch.manual_seed(0)
    plain = make_network(TINY)
    torch.manual_seed(0)
    network = make_network(attended(blocks=blocks))
    assert len(network.backbone.attention) == blocks
    own = {name for name in network.state_dict() if name.startswith("backbone.attention")}
    assert network.state_dict().keys() - own == plain.state_dict().keys()
    # Training begins with the same weights.
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in plain.state_dict().items())
    points = street()
    found, expected = (Detector(part.eval())(points) for part in (network, plain))
    assert len(expected.boxes) > 0
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    np.testing.assert_array_equal(found.scores, expected.scores)


def randomised(network: Network) -> Network:
    for name, value in network.named_parameters():
        if name.startswith("backbone.attention") and value.ndim == 2:
            torch.nn.init.normal_(value, std=0.2)
    return network.eval()


def test_a_frame_by_plans_is_that_of_the_layers(stage: Any) -> None:
    torch.manual_seed(0)
    network = randomised(make_network(attended())).fold()
    steps = stage.AttendedSteps(network)
    points = torch.from_numpy(street())
    with torch.inference_mode():
        located = make_pillars([points], network.config.pillars)
        levels = steps._backbone(steps.encode(located))
        assert isinstance(levels.features, stage.PlannedLevels)
        logits = steps.neck(levels).heat_logits()
        torch.testing.assert_close(logits, network.maps(located).heat_logits, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_a_gpu_computes_the_same(stage: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for counts in FRAMES:
        block, cells = trained(stage, odd=True), cells_of(counts)
        rows = torch.randn(len(cells), CHANNELS, requires_grad=True)
        expected = block(rows, cells, len(counts))
        (gradient,) = torch.autograd.grad(expected.square().sum(), rows)
        there = rows.detach().cuda().requires_grad_()
        found = block.cuda()(there, cells.cuda(), len(counts))
        (moved,) = torch.autograd.grad(found.square().sum(), there)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(moved.cpu(), gradient, rtol=1e-2, atol=1e-2)
        assert torch.equal(found, block(there, cells.cuda(), len(counts)))


@pytest.mark.slow
def test_the_benchmark_runs(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = load("detector.backbone_attention")
    data = bench.default_data()
    if not (data / "ImageSets" / "val.txt").is_file():
        pytest.skip(f"no KITTI frames in {data}")
    registered(load("detector.attended_backbone"), monkeypatch)
    out = tmp_path / "out.json"
    arguments = ["--quick", "--data", str(data), "--parts", "val", "--out", str(out)]
    assert bench.main([*arguments, "--seconds", "1", "--folder", str(tmp_path / "kept"), "--json"]) == 0
    values = json.loads(out.read_text())
    assert values["settings"]["steps"] >= 1
    development, training = values["cases"]
    assert development["sides"].keys() == training["sides"].keys() == {"plain", "attention"}
    assert training["sides"]["attention"]["parameters"] > training["sides"]["plain"]["parameters"]
    assert {"plain", "attention", "attention alone"} == values["frame"]["sides"].keys()
    assert str(tmp_path) not in json.dumps(values)
    assert bench.main([*arguments, "--trained", str(tmp_path / "kept"), "--json"]) == 0
    values = json.loads(out.read_text())
    assert values["cases"] == values["runs"] == []
    assert values["frame"]["sides"]["plain"]["median_ms"] > 0
