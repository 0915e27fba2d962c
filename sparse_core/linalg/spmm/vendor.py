"""Sparse matrix times dense matrix by a library: cuSPARSE on CUDA, MKL or scipy on a CPU.

cuSPARSE may sum in another order from call to call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.library import mkl_multiplies, scipy_csr, torch_csr


def spmm(matrix: CSR, dense: Tensor) -> Tensor:
    """Return ``matrix @ dense``."""
    dtype = torch.promote_types(matrix.dtype, dense.dtype)
    dense = dense.detach().to(dtype).resolve_conj().resolve_neg().contiguous()
    if matrix.device.type == "cpu" and not mkl_multiplies(matrix, dtype):
        return torch.from_numpy(scipy_csr(matrix, dtype) @ dense.numpy())
    return torch_csr(matrix, dtype) @ dense
