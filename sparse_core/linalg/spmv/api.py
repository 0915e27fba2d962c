"""Multiply a sparse matrix by a vector: which implementation runs."""

from __future__ import annotations

from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.formats import SparseMatrix
from sparse_core.linalg.implementation import Chosen
from sparse_core.linalg.spmv import reference, vendor
from sparse_core.linalg.structure import as_csr


@without_autocast
def multiply(matrix: SparseMatrix, x: Tensor, chosen: Chosen, method: str = "auto") -> Tensor:
    """``matrix @ x`` by the chosen implementation, without gradients and without checks of the arguments."""
    if chosen == "triton":
        from sparse_core.linalg.spmv import triton

        triton.check_runnable(matrix.values)
        return triton.spmv(matrix, x, method=method)
    if chosen == "vendor":
        return vendor.spmv(as_csr(matrix), x)
    return reference.spmv(as_csr(matrix), x)
