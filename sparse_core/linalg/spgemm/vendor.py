"""Sparse-sparse product by a library: cuSPARSE on CUDA, MKL on a CPU, or scipy without MKL."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.formats.base import index_dtype_for
from sparse_core.linalg.library import scipy_csr, torch_csr
from sparse_core.linalg.operands import accumulation_dtype


def spgemm(a: CSR, b: CSR) -> CSR:
    """Return ``a @ b``."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    shape = (a.shape[0], b.shape[1])
    if a.device.type == "cpu" and not torch.backends.mkl.is_available():
        return _by_scipy(a, b, dtype)
    if 0 in (*shape, a.nnz, b.nnz):
        # Some library versions reject empty operands.
        row_ptr = torch.zeros(shape[0] + 1, dtype=index_dtype_for(*shape), device=a.device)
        return CSR(row_ptr, row_ptr[:0], torch.zeros(0, dtype=dtype, device=a.device), shape, validate=False)
    working = accumulation_dtype(dtype)
    product = torch_csr(_narrow(a), working) @ torch_csr(_narrow(b), working)
    row_ptr, col, values = product.crow_indices(), product.col_indices(), product.values().to(dtype)
    if a.device.type == "cpu":
        found = scipy.sparse.csr_array((values.numpy(), col.numpy(), row_ptr.numpy()), shape=shape)
        return _from_scipy(found)
    return _sort(row_ptr, col, values, shape)


def _narrow(matrix: CSR) -> CSR:
    """Use 32-bit indices if they suffice; some library versions support no others."""
    index = index_dtype_for(*matrix.shape, matrix.nnz)
    if matrix.index_dtype == index:
        return matrix
    return CSR(matrix.row_ptr.to(index), matrix.col.to(index), matrix.values, matrix.shape, validate=False)


def _by_scipy(a: CSR, b: CSR, dtype: torch.dtype) -> CSR:
    """Multiply by scipy, which drops zero sums; the product of both patterns restores their positions."""
    left, right = scipy_csr(a, dtype), scipy_csr(b, dtype)
    product = (left @ right).tocsr()
    product.sort_indices()
    whole = (_ones(left) @ _ones(right)).tocsr()
    whole.sort_indices()
    values = np.zeros(whole.nnz, dtype=product.dtype)
    values[np.searchsorted(_keys(whole), _keys(product))] = product.data
    return _from_scipy(scipy.sparse.csr_array((values, whole.indices, whole.indptr), shape=whole.shape))


def _ones(matrix: Any) -> Any:
    # Floating-point counts stay positive; integers could wrap to zero.
    parts = (np.ones(matrix.nnz, dtype=np.float32), matrix.indices, matrix.indptr)
    return scipy.sparse.csr_array(parts, shape=matrix.shape)


def _keys(matrix: Any) -> Any:
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


def _from_scipy(matrix: Any) -> CSR:
    matrix.sort_indices()
    index = index_dtype_for(*matrix.shape, matrix.nnz)
    row_ptr, col = (torch.from_numpy(part).to(index) for part in (matrix.indptr, matrix.indices))
    return CSR(row_ptr, col, torch.from_numpy(matrix.data), matrix.shape, validate=False)


def _sort(row_ptr: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> CSR:
    rows = torch.arange(shape[0], device=col.device).repeat_interleave(row_ptr.diff(), output_size=len(col))
    order = torch.argsort(rows * shape[1] + col)
    index = index_dtype_for(*shape, len(col))
    return CSR(row_ptr.to(index), col[order].to(index), values[order], shape, validate=False)
