"""Sparse matrix times dense matrix on a CPU by compiled loops; the same bits on any number of threads."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import loops


def spmm(matrix: CSR, dense: Tensor) -> Tensor:
    """Return ``matrix @ dense``."""
    return loops.multiply(matrix, dense, torch.promote_types(matrix.dtype, dense.dtype))
