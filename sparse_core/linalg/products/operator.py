"""What ``@`` between matrices and tensors means."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sparse_core.formats import SparseMatrix
from sparse_core.linalg.products.api import spmm, spmv
from sparse_core.linalg.spgemm import spgemm


def matmul(left: Any, right: Any) -> Any:
    """``left @ right``, of which one at least is a sparse matrix.

    Returns:
        CSR for two matrices, a dense tensor for a matrix and a tensor; ``NotImplemented`` for anything else.
    """
    if isinstance(left, SparseMatrix):
        if isinstance(right, SparseMatrix):
            return spgemm(left, right)
        if isinstance(right, Tensor):
            return spmm(left, right)
        return NotImplemented
    if not isinstance(left, Tensor):
        return NotImplemented
    if left.ndim == 1:
        return spmv(right, left, transpose=True)
    return spmm(right, left.mT, transpose=True).mT
