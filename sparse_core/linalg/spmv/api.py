"""Choice of the implementation of a sparse matrix times a vector."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import SparseMatrix
from sparse_core.kernels.autocast import without_autocast
from sparse_core.kernels.op import Op
from sparse_core.linalg.implementation import PRODUCT
from sparse_core.linalg.structure import as_csr

SPMV: Op[torch.dtype] = Op("spmv", __package__, *PRODUCT, gradient=True)


@without_autocast
def multiply(matrix: SparseMatrix, x: Tensor, chosen: str, method: str = "auto") -> Tensor:
    """Return ``matrix @ x`` by the chosen implementation, without gradients and checks."""
    implementation = SPMV.load(chosen)
    result: Tensor
    if chosen == "triton":
        result = implementation.spmv(matrix, x, method=method)
    else:
        result = implementation.spmv(as_csr(matrix), x)
    return result
