"""Sampled dense-dense product by torch: cuSPARSE on CUDA, its own loops on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.formats import CSR
from sparse_core.linalg.library import pattern_csr
from sparse_core.linalg.sddmm.common import Pattern


def supports(pattern: Pattern, dtype: torch.dtype) -> bool:
    """Whether torch samples this format and type: CSR, single or double; complex on CUDA only."""
    real = dtype in (torch.float32, torch.float64)
    return isinstance(pattern, CSR) and (real or (dtype.is_complex and pattern.device.type == "cuda"))


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """``(a @ b)`` at the stored positions; see :func:`sparse_core.linalg.sddmm.reference.sddmm`.

    Raises:
        ImplementationError: torch does not sample this format or type.
    """
    dtype = torch.promote_types(a.dtype, b.dtype)
    if not isinstance(pattern, CSR) or not supports(pattern, dtype):
        raise ImplementationError(
            f"impl='vendor' samples CSR in float32 and float64 (complex on CUDA),"
            f" not {type(pattern).__name__} in {dtype} on {pattern.device}: take 'reference'"
        )
    operands = [operand.detach().to(dtype).resolve_conj().contiguous() for operand in (a, b)]
    sampled: Tensor = torch.sparse.sampled_addmm(pattern_csr(pattern, dtype), *operands, beta=0.0)
    return sampled.values()
