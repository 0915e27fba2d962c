"""Rounding to int8 in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

_LARGEST = 127


def quantise_input(x: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """See the public function."""
    if scale is None:
        scale = _scales_of(x)
    rounded = torch.round(x.float() / scale).clamp_(-_LARGEST, _LARGEST)
    return rounded.nan_to_num_(0.0).to(torch.int8), scale


def _scales_of(x: Tensor) -> Tensor:
    if not x.shape[-1]:
        return torch.ones((*x.shape[:-1], 1), device=x.device, dtype=torch.float32)
    largest = x.abs().amax(dim=-1, keepdim=True).float()
    # CUDA divides by a Python number by multiplying with its reciprocal, which rounds differently.
    scales = largest / torch.full_like(largest, _LARGEST)
    return torch.where(scales == 0, torch.ones_like(scales), scales)
