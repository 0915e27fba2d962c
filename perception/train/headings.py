"""Networks for labels without headings: the outputs of the heading are constant and never trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.head import BOX_CODE
from perception.model.network import Network
from perception.model.refine import RefineStage

#: Sine and cosine of yaw in a box code, and their values for yaw 0.
_CODE_VALUES = {BOX_CODE - 2: 0.0, BOX_CODE - 1: 1.0}
#: Turn and heading flip among the outputs of a refinement step; a negative flip logit turns nothing.
_REFINE_VALUES = {6: 0.0, 8: -8.0}


class _Rows(NamedTuple):
    """A layer, and the constant values of some of its outputs."""

    layer: nn.Linear
    values: dict[int, float]


def fix_headings(network: Network) -> None:
    """Make a network report boxes along the axes, and keep training from changing that."""
    for layer, values in _constant_rows(network):
        rows = list(values)
        weight, bias = layer.weight, layer.bias
        with torch.no_grad():
            weight[rows] = 0.0
            bias[rows] = bias.new_tensor(list(values.values()))
        for part in (weight, bias):
            part.register_hook(_Silence(rows))


class _Silence:
    """Removes the gradient of some rows."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def __call__(self, gradient: Tensor) -> Tensor:
        kept = gradient.clone()
        kept[self.rows] = 0.0
        return kept


def _constant_rows(network: Network) -> Iterator[_Rows]:
    count = len(network.config.head.classes)
    codes = {row * BOX_CODE + place: value for row in range(count) for place, value in _CODE_VALUES.items()}
    yield _Rows(network.head.box, codes)
    for stage in network.refinements:
        assert isinstance(stage, RefineStage)
        yield _Rows(stage.out, _REFINE_VALUES)
