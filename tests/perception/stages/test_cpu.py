"""The planned first stage of a CPU against the network's own layers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from perception import Detector
from perception.config import DetectorConfig
from perception.model.network import Network, NetworkMaps
from perception.model.pillars import make_pillars
from perception.stages.cpu import PlannedMaps
from perception.train.data.frames import TrainingFrame
from sparse_core.conv import SparseTensor

Street = Callable[[int], TrainingFrame]

pytestmark = pytest.mark.usefixtures("one_thread")


def assert_alike(made: NetworkMaps, expected: NetworkMaps) -> None:
    """To 1e-5 of the largest value."""
    for got, wanted in zip(made, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def maps_of(planned: PlannedMaps, encoded: SparseTensor) -> NetworkMaps:
    features, heat_logits = planned.neck(planned.backbone(encoded))
    return NetworkMaps(features, heat_logits())


def planned_and_own(network: Network, clouds: list[Tensor]) -> tuple[NetworkMaps, NetworkMaps]:
    network.fold()
    planned = PlannedMaps(network)
    with torch.inference_mode():
        pillars = make_pillars(clouds, network.config.pillars)
        encoded = network.encoder(pillars)
        assert PlannedMaps.suits(network)
        assert planned.runs(encoded)
        return maps_of(planned, encoded), network.maps(pillars)


def clouds_of(*frames: TrainingFrame) -> list[Tensor]:
    return [torch.from_numpy(frame.points) for frame in frames]


def test_bfloat16_is_near_float32(tiny_network: Network, street: Street) -> None:
    tiny_network.fold()
    exact, rounded = PlannedMaps(tiny_network), PlannedMaps(tiny_network, torch.bfloat16)
    with torch.inference_mode():
        encoded = tiny_network.encoder(make_pillars(clouds_of(street(0)), tiny_network.config.pillars))
        expected, made = maps_of(exact, encoded), maps_of(rounded, encoded)
        assert all(map(torch.equal, made, maps_of(rounded, encoded)))
    assert made.features.dtype == torch.bfloat16
    # The last product is exact, so that scores have more than 256 values.
    assert made.heat_logits.dtype == torch.float32
    assert not torch.equal(made.heat_logits, made.heat_logits.bfloat16().float())
    for got, wanted in zip(made, expected, strict=True):
        difference = (got.float() - wanted).abs()
        assert float(difference.max()) < 0.03 * float(wanted.abs().max())
        assert 0 < float(difference.mean()) < 0.01 * float(wanted.abs().mean())


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_maps_are_those_of_the_layers(blocks: int, tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(blocks)
    network = Network(replace(tiny_config, neck=replace(tiny_config.neck, blocks=blocks))).eval()
    assert_alike(*planned_and_own(network, clouds_of(street(0))))


def test_far_cells_and_borders_are_those_of_an_empty_scene(
    tiny_network: Network, tiny_config: DetectorConfig
) -> None:
    # 30 x 22 cells of the neck, few of them active: most lie out of reach, some beside every border.
    pillars = replace(tiny_config.pillars, range_m=(0.0, -22.0, -3.0, 60.0, 22.0, 1.0))
    network = Network(replace(tiny_config, pillars=pillars)).eval()
    network.load_state_dict(tiny_network.state_dict())
    spots = torch.tensor([[30.0, 0.0], [0.1, -21.9], [59.9, 21.9], [59.9, -3.0]])
    points = torch.cat([spots, torch.zeros(4, 2)], dim=1)
    for chosen in (points, points[:1], points[1:2], points[2:]):
        assert_alike(*planned_and_own(network, [chosen]))


def test_a_batch_with_an_empty_frame(tiny_network: Network, street: Street) -> None:
    made, expected = planned_and_own(
        tiny_network, [*clouds_of(street(0)), torch.zeros((0, 4)), *clouds_of(street(1))]
    )
    assert_alike(made, expected)


def test_stages_of_other_widths(tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(0)
    backbone = replace(tiny_config.backbone, channels=(24, 16), blocks=(0, 2))
    assert_alike(
        *planned_and_own(Network(replace(tiny_config, backbone=backbone)).eval(), clouds_of(street(2)))
    )


def test_the_same_bits_every_time_and_for_points_in_any_order(tiny_network: Network, street: Street) -> None:
    tiny_network.fold()
    planned, cloud = PlannedMaps(tiny_network), clouds_of(street(0))[0]
    found = []
    with torch.inference_mode():
        for seed in range(3):
            shuffled = cloud[torch.randperm(len(cloud), generator=torch.Generator().manual_seed(seed))]
            encoded = tiny_network.encoder(make_pillars([shuffled], tiny_network.config.pillars))
            found.append(maps_of(planned, encoded))
    for other in found[1:]:
        assert all(torch.equal(left, right) for left, right in zip(found[0], other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_used_again_does_not_show(tiny_network: Network, street: Street, dtype: torch.dtype) -> None:
    tiny_network.fold()
    planned = PlannedMaps(tiny_network, dtype)
    with torch.inference_mode():
        large, small = (
            tiny_network.encoder(make_pillars([cloud], tiny_network.config.pillars))
            for cloud in (clouds_of(street(0))[0], clouds_of(street(1))[0][::7])
        )
        expected = maps_of(PlannedMaps(tiny_network, dtype), small)
        maps_of(planned, large)
        for flat in planned._pools[0]._free:
            flat.fill_(math.nan)
        made = maps_of(planned, small)
        kept = [part.clone() for part in made]
        maps_of(planned, large)
    assert not planned._pools[0]._taken
    for got, later, wanted in zip(made, kept, expected, strict=True):
        assert torch.equal(got, wanted)
        assert torch.equal(got, later)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("behind", [False, True])
def test_changed_weights_are_packed_again(
    tiny_network: Network, street: Street, behind: bool, dtype: torch.dtype
) -> None:
    tiny_network.fold()
    planned = PlannedMaps(tiny_network, dtype)
    with torch.inference_mode():
        pillars = make_pillars(clouds_of(street(0)), tiny_network.config.pillars)
        encoded = tiny_network.encoder(pillars)
        before = maps_of(planned, encoded)
    with torch.no_grad():
        for part in (tiny_network.backbone, tiny_network.neck, tiny_network.head):
            for weight in part.parameters():
                (weight.data if behind else weight).mul_(1.25)
                if behind:
                    increment_version(weight)
    with torch.inference_mode():
        after = maps_of(planned, encoded)
        if dtype == torch.float32:
            assert_alike(after, tiny_network.maps(pillars))
        else:
            assert all(map(torch.equal, after, maps_of(PlannedMaps(tiny_network, dtype), encoded)))
    assert not torch.allclose(before.features, after.features)


def test_where_it_does_not_run(tiny_network: Network, tiny_config: DetectorConfig, street: Street) -> None:
    for changes in ({"kind": "dense"}, {"dilating": False}, {"impl": "reference"}):
        config = replace(tiny_config, backbone=replace(tiny_config.backbone, **changes))
        assert not PlannedMaps.suits(Network(config))
    tiny_network.fold()
    planned = PlannedMaps(tiny_network)
    pillars = make_pillars(clouds_of(street(0)), tiny_config.pillars)
    assert not planned.runs(tiny_network.encoder(pillars))  # gradients
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert not planned.runs(tiny_network.encoder(pillars))


def test_hooks_and_other_layers_are_not_passed_by(tiny_network: Network, street: Street) -> None:
    tiny_network.fold()
    planned = PlannedMaps(tiny_network)
    with torch.inference_mode():
        encoded = tiny_network.encoder(make_pillars(clouds_of(street(0)), tiny_network.config.pillars))
        assert planned.runs(encoded)
        hook = tiny_network.neck.out.register_forward_hook(lambda *_: None)
        assert not planned.runs(encoded)
        hook.remove()
        assert planned.runs(encoded)
        tiny_network.neck.out.conv = copy.deepcopy(tiny_network.neck.out.conv)
        assert planned.runs(encoded)
        setattr(tiny_network.neck.out, "conv", torch.nn.Sequential(tiny_network.neck.out.conv))  # noqa: B010
        assert not planned.runs(encoded)


def test_boxes_are_those_of_the_layers(
    tiny_network: Network, tiny_config: DetectorConfig, street: Street
) -> None:
    slow = Network(replace(tiny_config, backbone=replace(tiny_config.backbone, impl="reference"))).eval()
    slow.load_state_dict(tiny_network.state_dict())
    quick, general = (
        Detector(network).with_score_threshold(0.0) for network in (copy.deepcopy(tiny_network), slow)
    )
    frames = [street(seed).points for seed in range(3)]
    for found, expected in zip(quick.detect_batch(frames), general.detect_batch(frames), strict=True):
        assert len(expected) > 0
        assert list(found.labels) == list(expected.labels)
        np.testing.assert_allclose(found.boxes, expected.boxes, atol=1e-4)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
