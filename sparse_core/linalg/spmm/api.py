"""Multiply a sparse matrix by a dense matrix, or by a batch of them: which implementation runs."""

from __future__ import annotations

from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.formats import BSR, SparseMatrix
from sparse_core.linalg.implementation import Chosen
from sparse_core.linalg.spmm import reference, vendor
from sparse_core.linalg.spmm.common import apart, side_by_side
from sparse_core.linalg.structure import as_csr


@without_autocast
def multiply(matrix: SparseMatrix, dense: Tensor, chosen: Chosen) -> Tensor:
    """``matrix @ dense`` by the chosen implementation, without gradients and without argument checks."""
    if chosen != "triton":
        implementation = reference if chosen == "reference" else vendor
        return apart(implementation.spmm(as_csr(matrix), side_by_side(dense)), dense)
    from sparse_core.linalg.spmm import triton

    triton.check_runnable(matrix.values)
    if isinstance(matrix, BSR):
        from sparse_core.linalg.spmm import bsr_triton

        return apart(bsr_triton.spmm(matrix, side_by_side(dense)), dense)
    return triton.spmm(as_csr(matrix), dense)
