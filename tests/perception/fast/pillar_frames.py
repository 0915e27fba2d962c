"""Frames and encoders that the tests of pillars, and their comparison of implementations, share."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.pillars import PillarEncoder


def batch_of(frames: list[Tensor], behind: float) -> tuple[Tensor, Tensor]:
    """Frames in one buffer, ``behind`` after their ends, which must not be read, and their lengths."""
    room = max(len(frame) for frame in frames)
    points = torch.full((len(frames), room, 4), behind)
    for row, frame in zip(points, frames, strict=True):
        row[: len(frame)] = frame
    return points, torch.tensor([len(frame) for frame in frames], dtype=torch.int32)


def encoder_of(config: PillarConfig) -> PillarEncoder:
    """An encoder whose norms are not the identity."""
    torch.manual_seed(1)
    made = PillarEncoder(config)
    for unit in (made.points, made.pillars):
        torch.nn.init.normal_(unit.norm.running_mean, std=0.2)
        torch.nn.init.uniform_(unit.norm.running_var, 0.5, 2.0)
    return made.eval()
