"""Changes of weights that something was packed from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.autograd.graph import increment_version

from perception.stages.weight_watch import WeightWatch


def replace_parameter(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().clone())


def replace_memory(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.clone()


def replace_memory_twice(layer: nn.Linear) -> None:
    replace_memory(layer)
    replace_memory(layer)


def transpose(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.T


def write_one_number(layer: nn.Linear) -> None:
    with torch.no_grad():
        layer.weight.view(-1)[1] += 1.0


def load(layer: nn.Linear) -> None:
    layer.load_state_dict({name: value + 1.0 for name, value in layer.state_dict().items()})


def step(layer: nn.Linear) -> None:
    layer(torch.ones(1, 12)).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()


def write_behind(layer: nn.Linear) -> None:
    layer.weight.data.view(-1)[1] += 1.0
    increment_version(layer.weight)


def drop_the_bias(layer: nn.Linear) -> None:
    layer.register_parameter("bias", None)


CHANGES = (
    *(replace_parameter, replace_memory, replace_memory_twice, transpose, write_one_number, load, step),
    *(write_behind, drop_the_bias),
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: Callable[[nn.Linear], None]) -> None:
    layer = nn.Linear(12, 12)
    watch = WeightWatch([layer])
    layer(torch.ones(1, 12))
    assert watch.holds([layer])
    change(layer)
    assert not watch.holds([layer])


def test_every_number_of_a_weight_of_inference_mode_counts() -> None:
    with torch.inference_mode():
        layer = nn.Linear(12, 12)
        watch = WeightWatch([layer])
        assert watch.holds([layer])
        layer.weight.view(-1)[1] += 1.0
        assert not watch.holds([layer])
