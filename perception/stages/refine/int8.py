"""Point layers of the refinement on a CPU in bytes, with exact sums."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perception.model.network import Network
from perception.model.refine import CroppedPoints, RefineStage
from perception.stages.refine.cpu import CpuPoints
from perception.stages.scales import Scales
from sparse_core.conv.convolution.cpu.int8 import (
    ByteLayer,
    byte_layer,
    byte_rows,
    largest_bytes,
    pack_layer,
    padded,
)


class BytePoints(CpuPoints[list[ByteLayer]]):
    """Point layers in bytes after the first. Bytes keep the order of numbers, so maxima are those of bytes.

    Args:
        stage: folded stage on a CPU.
        network: of the stage, with ranges.
    """

    def __init__(self, stage: RefineStage, network: Network) -> None:
        super().__init__(stage)
        scales = Scales(network)
        self._scales = [scales.of(layer) for layer in stage.point_layers]

    def __call__(self, features: Tensor, crop: CroppedPoints) -> Tensor:
        """See :meth:`CpuPoints.__call__`."""
        first, *_ = self.stage.point_layers
        numbers: Tensor = first(features)
        rows = torch.empty((len(numbers), padded(numbers.shape[1])), dtype=torch.uint8)
        byte_rows(numbers, 1.0 / self._scales[0].step, out=rows)
        for layer in self._layers():
            rows = byte_layer(rows, layer, out=rows.new_empty((len(rows), layer.out_width)))
        found = largest_bytes(rows, crop.counts)[:, : self.stage.config.channels[-1]]
        return found.float() * self._scales[-1].step

    def _pack(self, linears: list[nn.Linear]) -> list[ByteLayer]:
        return [
            pack_layer(
                linear.weight.detach().T[None], linear.bias.detach(), in_scale=in_scale, out_scale=out_scale
            )
            for linear, in_scale, out_scale in zip(linears, self._scales, self._scales[1:], strict=False)
        ]
