"""An int8 frame on a CPU: near float32, and the same bits on every path."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from perception import Detector
from perception.checkpoints.ranges import RANGES_KEY, measure_ranges, ranges_of_header, ranges_to_header
from perception.config import DetectorConfig
from perception.data import open_data_set
from perception.errors import CheckpointError
from perception.evaluate.data_set import evaluate_detector
from perception.evaluate.kitti import KittiResult
from perception.model.listed_map import ByteMap, FeatureMap, ListedMap
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.model.ranging import in_range
from perception.model.refine import CroppedPoints, RefineStage
from perception.stages.byte_outputs import byte_outputs
from perception.stages.cpu import PlannedMaps
from perception.stages.neck.int8_layers import Int8Layers
from perception.stages.refine.int8 import BytePoints
from perception.train.data.frames import TrainingFrame
from perception.types import Detections
from sparse_core.common.workers import run_on_worker
from sparse_core.conv import SparseTensor
from sparse_core.conv.convolution.cpu.int8 import ByteLayer, compiled
from sparse_core.kernels import native

Street = Callable[[int], TrainingFrame]

pytestmark = pytest.mark.usefixtures("one_thread")
needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")


def measured(network: Network, street: Street) -> Network:
    """The folded network with ranges of two streets."""
    network.fold()
    network.ranges = measure_ranges(network, [torch.from_numpy(street(seed).points) for seed in range(2)])
    return network


def encoded_of(network: Network, cloud: Tensor) -> SparseTensor:
    with torch.inference_mode():
        made: SparseTensor = network.encoder(make_pillars([cloud], network.config.pillars))
    return made


def maps_of(planned: PlannedMaps, encoded: SparseTensor) -> tuple[FeatureMap, Tensor]:
    with torch.inference_mode():
        features, heat_logits = planned.neck(planned.backbone(encoded))
        return features, heat_logits()


def numbers(features: FeatureMap) -> Tensor:
    """(B, C, H, W) of a whole map."""
    assert isinstance(features, ByteMap)
    assert features.values.dtype == torch.uint8
    return features.values.permute(0, 3, 1, 2).float() * features.step


def test_near_float32(tiny_network: Network, street: Street) -> None:
    network = measured(tiny_network, street)
    exact, rounded = PlannedMaps(network), PlannedMaps(network, torch.int8)
    encoded = encoded_of(network, torch.from_numpy(street(0).points))
    expected, logits = maps_of(exact, encoded)
    found, rounded_logits = maps_of(rounded, encoded)
    assert isinstance(expected, Tensor)
    assert rounded_logits.dtype == torch.float32
    assert numbers(found).shape == expected.shape
    for got, wanted in ((numbers(found), expected), (rounded_logits, logits)):
        difference = (got - wanted).abs()
        assert float(difference.max()) < 0.06 * float(wanted.abs().max())
        assert 0 < float(difference.mean()) < 0.04 * float(wanted.abs().mean())


def convolved(rows: Tensor, layer: ByteLayer, skip: Tensor | None = None) -> Tensor:
    """A 3x3 layer on a whole map (H, W, C) of bytes, by a dense convolution of integers."""
    weight = layer.weight.double().view(3, 3, layer.width, layer.out_width).permute(3, 2, 0, 1)
    sums = F.conv2d(rows.double().permute(2, 0, 1)[None], weight, padding=1)[0].permute(1, 2, 0)
    result = sums.float() * layer.scale + layer.bias
    if skip is not None:
        result = result + skip.float() * layer.residual_scale
    return result.clamp(0, 255).round().to(torch.uint8)


@pytest.mark.parametrize("spots", [[0], [1, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_the_neck_is_a_dense_network_of_integers(
    tiny_config: DetectorConfig, street: Street, blocks: int, spots: list[int]
) -> None:
    """Cells out of reach, and at borders, have the values of a computation of every cell."""
    torch.manual_seed(blocks)
    pillars = replace(tiny_config.pillars, range_m=(0.0, -22.0, -3.0, 60.0, 22.0, 1.0))
    neck = replace(tiny_config.neck, blocks=blocks, out_channels=24)
    network = measured(Network(replace(tiny_config, pillars=pillars, neck=neck)).eval(), street)
    every = torch.tensor([[30.0, 0.0], [0.1, -21.9], [59.9, 21.9], [59.9, -3.0]])
    encoded = encoded_of(network, torch.cat([every[spots], torch.zeros(len(spots), 2)], dim=1))
    planned = PlannedMaps(network, torch.int8)
    with torch.inference_mode():
        stage, pool, rows = planned.backbone(encoded)
        layers: Any = stage.neck._layers
        assert isinstance(layers, Int8Layers)
        coarse, fine = rows.coarse[:-1].clone(), rows.fine[:-1].clone()
        cells, values = stage.neck.features(rows, pool)
        found = stage.neck.whole(cells, values)
        logits = stage.neck.heat_logits(cells, values, pool)
    height, width = stage.shape
    dense = torch.zeros((height, width, coarse.shape[1]), dtype=torch.uint8)
    dense[tuple(rows.coarse_level.cells[:, 1:].unbind(1))] = coarse
    *inner, last = layers._convolutions
    for first, second in zip(inner[::2], inner[1::2], strict=True):
        dense = convolved(convolved(dense, first), second, dense)
    lateral = torch.full((2 * height, 2 * width, fine.shape[1]), 128, dtype=torch.uint8)
    lateral[tuple(rows.fine_level.cells[:, 1:].unbind(1))] = fine
    below = lateral.view(height, 2, width, 2, -1).transpose(1, 2).reshape(height * width, -1)
    up = layers._up
    raised = (dense.double().view(height * width, -1) @ up.weight[0].double()).float() * up.scale + up.bias
    raised = (raised + below.float() * up.residual_scale).clamp(0, 255).round().to(torch.uint8)
    raised = raised.view(height, width, 2, 2, -1).transpose(1, 2).reshape(2 * height, 2 * width, -1)
    expected = convolved(raised, last)
    assert isinstance(found, ByteMap)
    assert torch.equal(found.values[0], expected[..., :24])
    hidden = expected.double().flatten(0, 1) @ layers._hidden.weight[0].double()
    hidden = torch.relu(hidden.float() * layers._hidden.scale + layers._hidden.bias)
    heat = (hidden @ layers._heat_weight + layers._heat_bias).view(2 * height, 2 * width, -1)
    torch.testing.assert_close(logits[0], heat.permute(2, 0, 1), rtol=1e-5, atol=1e-5)


@needs_compiler
def test_the_same_bits_on_every_path_and_any_threads(
    tiny_network: Network, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled.PRODUCTS.ready()
    network = measured(tiny_network, street)
    encoded = encoded_of(network, torch.from_numpy(street(0).points))
    found = [maps_of(PlannedMaps(network, torch.int8), encoded)]
    for path in set(compiled.paths()) - {"skipping"}:
        with monkeypatch.context() as patched:
            patched.setattr(compiled, "fastest_path", lambda path=path, **_: path)
            found.append(maps_of(PlannedMaps(network, torch.int8), encoded))
    found.append(run_on_worker(lambda: maps_of(PlannedMaps(network, torch.int8), encoded), 3))
    monkeypatch.setattr(compiled.PRODUCTS, "library", lambda: None)
    found.append(maps_of(PlannedMaps(network, torch.int8), encoded))
    for features, logits in found[1:]:
        assert torch.equal(numbers(features), numbers(found[0][0]))
        assert torch.equal(logits, found[0][1])


def test_memory_used_again_does_not_show(tiny_network: Network, street: Street) -> None:
    network = measured(tiny_network, street)
    planned = PlannedMaps(network, torch.int8)
    large = encoded_of(network, torch.from_numpy(street(0).points))
    small = encoded_of(network, torch.from_numpy(street(1).points[::7]))
    expected, logits = maps_of(PlannedMaps(network, torch.int8), small)
    maps_of(planned, large)
    for flat in planned._pools[0]._free:
        flat.view(torch.uint8).fill_(171)
    made, made_logits = maps_of(planned, small)
    kept = numbers(made).clone()
    maps_of(planned, large)
    assert not planned._pools[0]._taken
    assert torch.equal(kept, numbers(expected))
    assert torch.equal(numbers(made), kept)
    assert torch.equal(made_logits, logits)


def test_changed_weights_are_packed_again(tiny_network: Network, street: Street) -> None:
    network = measured(tiny_network, street)
    planned = PlannedMaps(network, torch.int8)
    encoded = encoded_of(network, torch.from_numpy(street(0).points))
    before, _ = maps_of(planned, encoded)
    with torch.no_grad():
        network.neck.out.conv.weight.mul_(0.5)
    after, _ = maps_of(planned, encoded)
    assert float(numbers(after).mean()) < 0.8 * float(numbers(before).mean())


def same(one: Detections, other: Detections) -> bool:
    return (
        one.boxes.tobytes() == other.boxes.tobytes()
        and one.scores.tobytes() == other.scores.tobytes()
        and list(one.labels) == list(other.labels)
    )


@pytest.mark.parametrize("blocks", [0, 2])
def test_maps_without_a_range_are_those_of_a_range(
    tiny_config: DetectorConfig, street: Street, blocks: int
) -> None:
    torch.manual_seed(5)
    neck = replace(tiny_config.neck, blocks=blocks, out_channels=24)
    network = measured(Network(replace(tiny_config, neck=neck)).eval(), street)
    found = []
    for range_m in ((-30.0, -30.0, -3.0, 30.0, 30.0, 1.0), None):
        moved = in_range(network, network.config.pillars.with_range(range_m))
        encoded = encoded_of(moved, torch.from_numpy(street(0).points))
        found.append(maps_of(PlannedMaps(moved, torch.int8), encoded)[0])
    bounded, opened = found
    assert isinstance(bounded, ByteMap)
    assert isinstance(opened, ListedMap)
    assert bounded.values.shape[-1] == opened.values.shape[-1] == 24
    frame, row, column = torch.cartesian_prod(torch.tensor([0]), *[torch.arange(15, 45)] * 2).unbind(1)
    # Cells of a metre; the unbounded grid counts from the corner of the configured range.
    first = moved.config.pillars.grid.coarser(4).first_cell
    expected = bounded.at(frame, row, column)
    assert float(expected.mean()) > 0
    assert torch.equal(opened.at(frame, row + first - 30 + 8, column + first - 30), expected)


def test_a_batch_gives_the_bits_of_single_calls(tiny_network: Network, street: Street) -> None:
    detector = Detector(measured(tiny_network, street), precision="int8").with_score_threshold(0.0)
    scans = [street(seed).points for seed in range(3)]
    single = [detector(scan) for scan in scans]
    assert all(len(found) > 0 for found in single)
    together = run_on_worker(lambda: detector.detect_batch(scans), 2)
    assert all(map(same, together, single))
    nothing = detector(np.zeros((0, 4), np.float32))
    assert len(nothing) == 0


def crop_of(counts: list[int]) -> tuple[Tensor, CroppedPoints]:
    total = sum(counts)
    generator = torch.Generator().manual_seed(total)
    points = torch.randn(total, 4, generator=generator)
    rows = torch.repeat_interleave(torch.tensor(counts))
    features = torch.randn(total, 12, generator=generator)
    return features, CroppedPoints(points, points[:, :3], rows, torch.tensor(counts))


@pytest.mark.parametrize("counts", [[3, 0, 40], [700, 5], [0, 0]])
def test_point_layers_are_near_float32(tiny_network: Network, street: Street, counts: list[int]) -> None:
    network = measured(tiny_network, street)
    stage = network.refinements[0]
    assert isinstance(stage, RefineStage)
    features, crop = crop_of(counts)
    with torch.inference_mode():
        hidden = features
        for layer in stage.point_layers:
            hidden = layer(hidden)
            name = next(name for name, module in byte_outputs(network) if module is layer)
            assert network.ranges is not None
            network.ranges[name] = max(network.ranges[name], float(hidden.max()) if len(hidden) else 0.0)
        points = BytePoints(stage, network)
        expected, made = stage._pooled(features, crop), points(features, crop)
    assert points.runs()
    assert made.dtype == torch.float32
    assert made.shape == expected.shape
    assert float((made - expected).abs().max()) <= 0.03 * float(expected.abs().max())
    assert torch.equal(made, expected) == (sum(counts) == 0)


@needs_compiler
def test_point_layers_have_the_bits_of_the_reference(
    tiny_network: Network, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled.PRODUCTS.ready()
    network = measured(tiny_network, street)
    stage = network.refinements[1]
    assert isinstance(stage, RefineStage)
    given = crop_of([40, 0, 700])
    with torch.inference_mode():
        quick = BytePoints(stage, network)(*given)
        monkeypatch.setattr(compiled.PRODUCTS, "library", lambda: None)
        assert torch.equal(BytePoints(stage, network)(*given), quick)


def test_ranges_hold_every_output(tiny_network: Network, street: Street) -> None:
    network = measured(tiny_network, street)
    assert network.ranges is not None
    unit = network.get_submodule("backbone.stages.0.0.first")
    seen: list[float] = []
    unit.register_forward_hook(lambda _, __, made: seen.append(float(made.features.abs().max())))
    copied = copy.deepcopy(network.ranges)
    again = measure_ranges(network, [torch.from_numpy(street(seed).points) for seed in range(2)])
    assert again == copied
    assert max(seen) == pytest.approx(copied["backbone.stages.0.0.first"])
    with pytest.raises(ValueError, match="no scan has points in range"):
        measure_ranges(network, [torch.zeros((0, 4))])


def test_damaged_ranges_are_refused(tiny_network: Network, street: Street) -> None:
    network = measured(tiny_network, street)
    assert network.ranges is not None
    assert ranges_of_header({}, network) is None
    assert ranges_of_header(ranges_to_header(network.ranges), network) == network.ranges
    for text in ("{", "[1]", '{"encoder": "x"}'):
        with pytest.raises(CheckpointError, match="damaged int8 ranges"):
            ranges_of_header({RANGES_KEY: text}, network)
    for value in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(CheckpointError, match=r"int8 ranges of other weights \(encoder"):
            ranges_of_header(ranges_to_header({**network.ranges, "encoder": value}), network)
    less = {name: value for name, value in network.ranges.items() if name != "neck.up"}
    with pytest.raises(CheckpointError, match=r"other weights \(neck.up is missing\)"):
        ranges_of_header(ranges_to_header(less), network)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", ["pointpillars-kitti", "pointpillars-kitti-2of4-int8"])
def test_average_precision_is_that_of_float32(kitti_directory: Path, tmp_path: Path, name: str) -> None:
    assert compiled.PRODUCTS.ready()
    frames = open_data_set(kitti_directory, "val")
    found = []
    for precision in ("float32", "int8"):
        detector = Detector.from_pretrained(name, precision=precision)
        result = evaluate_detector(detector, frames, tmp_path / precision)
        assert isinstance(result, KittiResult)
        found.append([result.ap("Car", "3d", level) for level in ("easy", "moderate", "hard")])
    assert found[1] == pytest.approx(found[0], abs=0.5)
    assert found[1] != found[0]
