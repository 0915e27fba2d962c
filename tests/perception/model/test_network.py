"""The whole network: shapes, gradients, folding, the dense twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.model.network import Network
from perception.model.pillars import Pillars, make_pillars
from perception.registry import make_network
from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]


def some_boxes(frame: TrainingFrame) -> tuple[Tensor, Tensor, Tensor]:
    count = len(frame.boxes)
    return (
        torch.from_numpy(frame.boxes),
        torch.zeros(count, dtype=torch.int64),
        torch.from_numpy(frame.labels),
    )


def pillars_of(frame: TrainingFrame, config: DetectorConfig) -> Pillars:
    return make_pillars([torch.from_numpy(frame.points)], config.pillars)


def test_shapes(tiny_network: Network, tiny_config: DetectorConfig, street: Street) -> None:
    frames = [street(0), street(1)]
    pillars = make_pillars([torch.from_numpy(frame.points) for frame in frames], tiny_config.pillars)
    maps = tiny_network.maps(pillars)
    assert maps.features.shape == (2, 16, 16, 16)
    assert maps.heat_logits.shape == (2, 2, 16, 16)
    assert tiny_network.propose(maps).boxes.shape == (2, 20, 7)
    assert len(tiny_network.refinements) == 2


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_gradient_reaches_every_parameter(kind: str, tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(0)
    config = replace(tiny_config, backbone=replace(tiny_config.backbone, kind=kind))
    network, frame = make_network(config).train(), street(0)
    pillars = pillars_of(frame, config)
    maps = network.maps(pillars)
    boxes, box_frames, labels = some_boxes(frame)
    cells = torch.tensor([[0, 4, 4], [0, 11, 4], [0, 4, 11], [0, 11, 11]])
    total = maps.heat_logits.square().sum()
    for label in range(2):  # every class has outputs of its own
        total = total + network.head.box_codes(maps.features, cells, torch.full((4,), label)).square().sum()
    for stage in network.refinements:
        output = stage(pillars, maps.features, boxes, box_frames, labels)
        weighted = output.residuals * torch.arange(1.0, 8.0)
        total = total + weighted.sum() + output.fit_logits.sum() + output.flip_logits.sum()
    total.backward()
    missing = [name for name, value in network.named_parameters() if value.grad is None]
    zero = [
        name for name, value in network.named_parameters() if value.grad is not None and not value.grad.any()
    ]
    assert missing == []
    assert zero == []


def test_dense_twin_has_the_same_size(tiny_config: DetectorConfig) -> None:
    dense = replace(tiny_config, backbone=replace(tiny_config.backbone, kind="dense"))
    sizes = [
        sum(value.numel() for value in make_network(config).parameters()) for config in (tiny_config, dense)
    ]
    assert sizes[0] == sizes[1]
    names = [set(make_network(config).state_dict()) for config in (tiny_config, dense)]
    assert names[0] == names[1]


def test_folding_leaves_outputs_as_they_are(
    tiny_network: Network, tiny_config: DetectorConfig, street: Street
) -> None:
    frame = street(0)
    pillars = pillars_of(frame, tiny_config)

    def outputs() -> list[Tensor]:
        with torch.no_grad():
            maps = tiny_network.maps(pillars)
            boxes, output = tiny_network.refine(pillars, maps.features, *some_boxes(frame))
        return [*maps, boxes, *output]

    before = outputs()
    after = [*outputs()] if tiny_network.fold() is tiny_network else []
    assert not any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in tiny_network.modules())
    for first, second in zip(before, after, strict=True):
        torch.testing.assert_close(second, first, atol=1e-4, rtol=1e-4)


def test_refine_turns_a_box_around_where_the_last_step_says_so(
    tiny_network: Network, tiny_config: DetectorConfig, street: Street
) -> None:
    frame = street(0)
    pillars = pillars_of(frame, tiny_config)
    last = tiny_network.refinements[-1]
    with torch.no_grad():
        maps = tiny_network.maps(pillars)
        yaws = []
        for bias in (-50.0, 50.0):
            last.out.bias[8] = bias
            boxes, _ = tiny_network.refine(pillars, maps.features, *some_boxes(frame))
            yaws.append(boxes[:, 6])
    torch.testing.assert_close(yaws[1] - yaws[0], torch.full((4,), torch.pi))


def test_one_pass_is_deterministic(
    tiny_network: Network, tiny_config: DetectorConfig, street: Street
) -> None:
    pillars = pillars_of(street(0), tiny_config)
    with torch.no_grad():
        first, second = tiny_network.maps(pillars), tiny_network.maps(pillars)
    assert torch.equal(first.heat_logits, second.heat_logits)
