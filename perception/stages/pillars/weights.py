"""Packed weights of a pillar encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perception.geometry import GroundGrid
from perception.model.encoder import POINT_FEATURES, PillarEncoder
from perception.model.layers import PointUnit


@dataclass(frozen=True, eq=False)
class EncoderWeights:
    """Weights of a :class:`~perception.model.encoder.PillarEncoder` in float32, batch norms folded.

    Attributes:
        grid: grid of the pillars.
        channels: number of channels ``C``.
        point_weight: (9, C / 2) point layer; with several sweeps (10, C / 2).
        point_bias: (C / 2,).
        pillar_weight: (C + 2, C) pillar layer, for maximum, mean, height, logarithm of the number of points.
        pillar_bias: (C,).
    """

    grid: GroundGrid
    channels: int
    point_weight: Tensor
    point_bias: Tensor
    pillar_weight: Tensor
    pillar_bias: Tensor

    @classmethod
    def from_encoder(
        cls, encoder: PillarEncoder, *, device: torch.device | str | None = None
    ) -> EncoderWeights:
        """Copy the weights of an encoder, folded or not.

        Args:
            encoder: encoder in evaluation mode.
            device: device of the copies; None: that of the encoder.
        """
        if encoder.training:
            raise ValueError("EncoderWeights needs an encoder in evaluation mode. Call encoder.eval() first.")
        config = encoder.config
        point_weight, point_bias = _folded(encoder.points)
        pillar_weight, pillar_bias = _folded(encoder.pillars)
        assert point_weight.shape == (POINT_FEATURES + config.columns - 4, config.channels // 2)
        return cls(
            config.grid,
            config.channels,
            *(part.to(device) for part in (point_weight, point_bias, pillar_weight, pillar_bias)),
        )


def _folded(unit: PointUnit) -> tuple[Tensor, Tensor]:
    """Copy weight (C_in, C_out) and bias (C_out,) of a unit."""
    weight, bias = (part.float().clone() for part in unit.folded())
    return weight.t().contiguous(), bias
