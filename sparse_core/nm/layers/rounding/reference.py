"""Rounding to int8 in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

_LARGEST = 127


def quantise_input(x: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """See the public function."""
    if scale is None:
        scale = _scale_of(x)
    rounded = torch.round(x.float() / scale).clamp_(-_LARGEST, _LARGEST)
    return rounded.nan_to_num_(0.0).to(torch.int8), scale


def _scale_of(x: Tensor) -> Tensor:
    if not x.numel():
        return torch.ones((), device=x.device, dtype=torch.float32)
    largest = x.abs().flatten().amax(dim=0).float()
    # CUDA divides by a Python number by multiplying with its reciprocal, which rounds differently.
    scale = largest / torch.full_like(largest, _LARGEST)
    return torch.where(scale == 0, torch.ones_like(scale), scale)
