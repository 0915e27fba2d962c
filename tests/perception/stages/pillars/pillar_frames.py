"""Frames and encoders that the tests of pillars, and their comparison of implementations, share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.model.encoder import PillarEncoder
from perception.stages.pillars import (
    EncoderWeights,
    FixedPillars,
    PillarWorkspace,
    fixed_encode,
    locate_points,
    sort_points,
)
from sparse_core.conv.grid import grid_from_bits


def batch_of(frames: list[Tensor], behind: float) -> tuple[Tensor, Tensor]:
    """Frames in one buffer, ``behind`` after their ends, which must not be read, and their lengths."""
    room = max(len(frame) for frame in frames)
    points = torch.full((len(frames), room, frames[0].shape[1]), behind)
    for row, frame in zip(points, frames, strict=True):
        row[: len(frame)] = frame
    return points, torch.tensor([len(frame) for frame in frames], dtype=torch.int32)


def encoded(
    points: Tensor,
    lengths: Tensor,
    config: PillarConfig,
    capacity: int,
    weights: EncoderWeights,
    *,
    workspace: PillarWorkspace | None = None,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> tuple[FixedPillars, Tensor]:
    """Points by pillar and the features of the pillars, in the order of the steps of a frame."""
    located = locate_points(points, lengths, config, workspace=workspace)
    grid = grid_from_bits(located.bits, config.grid_shape, len(points), capacity)
    features = fixed_encode(located, grid, weights, dtype=dtype, out=out)
    return sort_points(located, grid), features


def in_order(points: Tensor, rows: Tensor) -> Tensor:
    """Bits of points (N, C), ordered by row and then by the bits: the same whatever order they came in."""
    bits = points.cpu().view(torch.int32)
    keys = (*bits.numpy().T[::-1], rows.cpu().numpy())
    return bits[torch.from_numpy(np.lexsort(keys))]


def encoder_of(config: PillarConfig) -> PillarEncoder:
    """An encoder whose norms are not the identity."""
    torch.manual_seed(1)
    made = PillarEncoder(config)
    for unit in (made.points, made.pillars):
        torch.nn.init.normal_(unit.norm.running_mean, std=0.2)
        torch.nn.init.uniform_(unit.norm.running_var, 0.5, 2.0)
    return made.eval()
