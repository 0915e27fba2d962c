"""Active cells drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor


def some_cells(shape: tuple[int, ...], frames: int, share: float, seed: int) -> Tensor:
    """Distinct cells in key order: (M, 1 + D)."""
    random = torch.Generator().manual_seed(seed)
    return (torch.rand((frames, *shape), generator=random) < share).nonzero()
