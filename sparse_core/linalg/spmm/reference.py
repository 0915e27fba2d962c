"""Sparse matrix times dense matrix in plain torch: gather, multiply, sum row by row."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.structure import segment_sum

#: Most products per slice of columns.
_PRODUCTS = 2**24


def spmm(matrix: CSR, dense: Tensor) -> Tensor:
    """Return ``matrix @ dense`` on any device, bitwise reproducibly, in slices of bounded memory."""
    dtype = torch.promote_types(matrix.dtype, dense.dtype)
    working = accumulation_dtype(dtype)
    values = matrix.values.to(working)[:, None]
    product = torch.empty(matrix.shape[0], dense.shape[1], dtype=dtype, device=dense.device)
    width = max(1, _PRODUCTS // max(1, matrix.nnz))
    for first in range(0, dense.shape[1], width):
        columns = slice(first, first + width)
        gathered = dense[:, columns].to(working)[matrix.col]
        product[:, columns] = segment_sum(values * gathered, matrix.row_ptr).to(dtype)
    return product
