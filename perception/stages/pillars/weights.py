"""Weights of a pillar encoder, batch norms folded, laid out for one kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perception.geometry import GroundGrid
from perception.model.encoder import POINT_FEATURES, PillarEncoder
from perception.model.layers import PointUnit


@dataclass(frozen=True, eq=False)
class EncoderWeights:
    """A :class:`~perception.model.encoder.PillarEncoder` in evaluation, float32; ``C`` channels.

    Attributes:
        grid: of the pillars.
        channels: ``C``.
        point_weight: (9, C / 2) of the layer shared by all points.
        point_bias: (C / 2,).
        pillar_weight: (C + 2, C) of the layer shared by all pillars: maximum, mean, height, logarithm of
            the number of points.
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
        """Copies of an encoder's weights with its batch norms folded in; the encoder stays as it is.

        Args:
            encoder: folded or not.
            device: where the copies lie; None: where the encoder is.

        Raises:
            ValueError: the encoder is in training mode.
        """
        if encoder.training:
            raise ValueError("EncoderWeights needs an encoder in evaluation mode: call .eval() first")
        config = encoder.config
        point_weight, point_bias = _folded(encoder.points)
        pillar_weight, pillar_bias = _folded(encoder.pillars)
        assert point_weight.shape == (POINT_FEATURES, config.channels // 2)
        return cls(
            config.grid,
            config.channels,
            *(part.to(device) for part in (point_weight, point_bias, pillar_weight, pillar_bias)),
        )


def _folded(unit: PointUnit) -> tuple[Tensor, Tensor]:
    """Weight (C_in, C_out) and bias (C_out,) of a unit, copied."""
    weight, bias = (part.float().clone() for part in unit.folded())
    return weight.t().contiguous(), bias
