"""The point layers of a refinement on a CPU in bfloat16."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.layers import PointUnit
from perception.model.refine import CroppedPoints, RefineStage, pool_points
from perception.stages.weight_watch import WeightWatch
from sparse_core.conv.convolution.cpu.blocks import rows_product


class _Packed(NamedTuple):
    """Weight (C_in, C_out) and bias (C_out,) of each layer behind the first, and what they were made of."""

    layers: list[tuple[Tensor, Tensor]]
    watch: WeightWatch


class PlannedPoints:
    """Point layers and the maximum over each proposal's points, with bfloat16 behind the first layer.

    That one reads positions, of which bfloat16 would lose centimetres. Weights are packed at the first call,
    and again after they were changed.

    Args:
        stage: folded, on a CPU.
    """

    def __init__(self, stage: RefineStage) -> None:
        self.stage = stage
        self._plan: _Packed | None = None

    def runs(self) -> bool:
        """Whether the layers are folded ones of their own kind without hooks, which would not be called."""
        return not torch.is_autocast_enabled("cpu") and all(map(_is_plain, self.stage.point_layers))

    def __call__(self, features: Tensor, crop: CroppedPoints) -> Tensor:
        """(P, 12) float32 features of the points of R proposals to (R, C) float32."""
        first, *_ = self.stage.point_layers
        layers = self._layers()

        def compute(part: Tensor) -> Tensor:
            made: Tensor = first(part).bfloat16()
            for weight, bias in layers:
                out = made.new_empty((len(made), weight.shape[1]))
                made = rows_product(made, weight, out=out, bias=bias, relu=True)
            return made

        return pool_points(features, crop, compute, self.stage.config.channels[-1])

    def _layers(self) -> list[tuple[Tensor, Tensor]]:
        linears = [unit.linear for unit in self.stage.point_layers if isinstance(unit, PointUnit)][1:]
        if self._plan is None or not self._plan.watch.holds(linears):
            packed = [
                (linear.weight.detach().T.contiguous().bfloat16(), linear.bias.detach().bfloat16())
                for linear in linears
            ]
            self._plan = _Packed(packed, WeightWatch(linears))
        return self._plan.layers


def _is_plain(unit: nn.Module) -> bool:
    return (
        isinstance(unit, PointUnit)
        and type(unit.linear) is nn.Linear
        and isinstance(unit.norm, nn.Identity)
        and not any(part._forward_hooks or part._forward_pre_hooks for part in unit.modules())
    )
