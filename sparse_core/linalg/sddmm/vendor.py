"""Sampled dense product by torch: cuSPARSE on CUDA, its own loops on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.library import pattern_csr


def sddmm(pattern: CSR, a: Tensor, b: Tensor) -> Tensor:
    """Return ``(a @ b)`` at the stored positions."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    operands = [operand.detach().to(dtype).resolve_conj().contiguous() for operand in (a, b)]
    sampled: Tensor = torch.sparse.sampled_addmm(pattern_csr(pattern, dtype), *operands, beta=0.0)
    return sampled.values()
