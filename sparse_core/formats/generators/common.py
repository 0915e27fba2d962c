"""Functions that the generators share."""

from __future__ import annotations

import torch
from torch import Tensor

Device = torch.device | str


def require_size(name: str, size: int) -> int:
    """Return ``size``; raise ``ValueError`` unless it is a whole number and not negative."""
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"{name} must be a whole number and not negative, got {size!r}")
    return size


def normal_values(count: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Draw normal values (count,) on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, generator=generator, dtype=dtype if dtype.is_complex else None).to(dtype)
