"""Point layers of the refinement on a CPU with packed weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from perception.model.layers import PointUnit
from perception.model.refine import CroppedPoints, RefineStage, pool_points
from perception.stages.weight_watch import WeightWatch
from sparse_core.conv.convolution.cpu.blocks import rows_product

#: Packed layers of a stage.
LayersT = TypeVar("LayersT")


class CpuPoints(ABC, Generic[LayersT]):
    """Point layers and the maximum per proposal, with packed weights after the first layer.

    The first layer reads positions, which would lose centimetres in fewer bits. Weights are packed at the
    first call and after changes.

    Args:
        stage: folded stage on a CPU.
    """

    def __init__(self, stage: RefineStage) -> None:
        self.stage = stage
        self._packed: tuple[LayersT, WeightWatch] | None = None

    def runs(self) -> bool:
        """Return True if the layers are folded originals without hooks."""
        return not torch.is_autocast_enabled("cpu") and all(map(_is_plain, self.stage.point_layers))

    @abstractmethod
    def __call__(self, features: Tensor, crop: CroppedPoints) -> Tensor:
        """Compute (R, C) float32 from features (P, F) float32 of the points of R proposals."""

    @abstractmethod
    def _pack(self, linears: list[nn.Linear]) -> LayersT:
        """Pack the layers after the first."""

    def _layers(self) -> LayersT:
        units = [unit for unit in self.stage.point_layers if isinstance(unit, PointUnit)]
        linears = [unit.linear for unit in units[1:]]
        if self._packed is None or not self._packed[1].holds(linears):
            self._packed = self._pack(linears), WeightWatch(linears)
        return self._packed[0]


class PlannedPoints(CpuPoints[list[tuple[Tensor, Tensor]]]):
    """Point layers in bfloat16 after the first: weight (C_in, C_out) and bias (C_out,) of each."""

    def __call__(self, features: Tensor, crop: CroppedPoints) -> Tensor:
        """See :meth:`CpuPoints.__call__`."""
        first, *_ = self.stage.point_layers
        layers = self._layers()

        def compute(part: Tensor) -> Tensor:
            made: Tensor = first(part).bfloat16()
            for weight, bias in layers:
                out = made.new_empty((len(made), weight.shape[1]))
                made = rows_product(made, weight, out=out, bias=bias, relu=True)
            return made

        return pool_points(features, crop, compute, self.stage.config.channels[-1])

    def _pack(self, linears: list[nn.Linear]) -> list[tuple[Tensor, Tensor]]:
        return [
            (linear.weight.detach().T.contiguous().bfloat16(), linear.bias.detach().bfloat16())
            for linear in linears
        ]


def _is_plain(unit: nn.Module) -> bool:
    return (
        isinstance(unit, PointUnit)
        and type(unit.linear) is nn.Linear
        and isinstance(unit.norm, nn.Identity)
        and not any(part._forward_hooks or part._forward_pre_hooks for part in unit.modules())
    )
