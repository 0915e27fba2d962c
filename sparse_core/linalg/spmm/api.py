"""Choice of the implementation of a sparse matrix times a dense matrix or a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import BSR, SparseMatrix
from sparse_core.kernels.autocast import without_autocast
from sparse_core.kernels.op import Op
from sparse_core.linalg.implementation import LOOPS, PRODUCT
from sparse_core.linalg.spmm.common import apart, side_by_side
from sparse_core.linalg.structure import as_csr

SPMM: Op[torch.dtype] = Op("spmm", __package__, LOOPS, *PRODUCT, gradient=True)


@without_autocast
def multiply(matrix: SparseMatrix, dense: Tensor, chosen: str) -> Tensor:
    """Return ``matrix @ dense`` by the chosen implementation, without gradients and checks."""
    if chosen != "triton":
        return apart(SPMM.load(chosen).spmm(as_csr(matrix), side_by_side(dense)), dense)
    if isinstance(matrix, BSR):
        from sparse_core.linalg.spmm import bsr_triton

        return apart(bsr_triton.spmm(matrix, side_by_side(dense)), dense)
    result: Tensor = SPMM.load(chosen).spmm(as_csr(matrix), dense)
    return result
