"""Sampled dense product on a CPU by compiled loops; the same bits on any number of threads."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import loops


def sddmm(pattern: CSR, a: Tensor, b: Tensor) -> Tensor:
    """Return ``(a @ b)`` at the stored positions."""
    return loops.sample(pattern, a, b.transpose(0, 1), torch.promote_types(a.dtype, b.dtype))
