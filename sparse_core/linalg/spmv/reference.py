"""Sparse matrix-vector product in plain torch: gather, multiply, sum row by row."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.structure import segment_sum


def spmv(matrix: CSR, x: Tensor) -> Tensor:
    """Return ``matrix @ x`` on any device, bitwise reproducibly."""
    dtype = torch.promote_types(matrix.dtype, x.dtype)
    working = accumulation_dtype(dtype)
    products = matrix.values.to(working) * x.to(working)[matrix.col]
    return segment_sum(products, matrix.row_ptr).to(dtype)
