"""Packed weights from the backbone's last level to the heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from perception.model.network import Network
from perception.stages.backbone.units import Unit, pack_block, pack_unit
from perception.stages.head import HeatWeights, UpWeights, pack_heat, pack_up


class NeckWeights(NamedTuple):
    """Layers from the sparse backbone's last level to the heat map.

    Attributes:
        down: 3x3 convolution of stride 2 into the neck.
        blocks: residual blocks, at least one for a neck near active cells.
        up: upsampling to the finer map, with the lateral convolution.
        out: 3x3 convolution of the finer map.
        heat: layers of the heat map.
    """

    down: Unit
    blocks: Sequence[tuple[Unit, Unit]]
    up: UpWeights
    out: Unit
    heat: HeatWeights

    @classmethod
    def of(cls, network: Network, dtype: torch.dtype) -> NeckWeights:
        """Pack the weights of a folded network."""
        return cls(
            pack_unit(network.backbone.down, dtype),
            [pack_block(block, dtype) for block in network.neck.blocks],
            pack_up(network.neck.up, network.backbone.lateral, dtype),
            pack_unit(network.neck.out, dtype),
            pack_heat(network.head, dtype),
        )
