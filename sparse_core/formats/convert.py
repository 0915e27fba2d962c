"""Conversions from dense tensors, scipy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparse_core.common.matrix_operations import operations
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.blocks import scalar_places
from sparse_core.formats.bsr import BSR
from sparse_core.formats.coo import COO, are_sorted
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import expand_pointers, narrow, pointers_from_rows, true_positions
from sparse_core.formats.validation import can_read, check_pointers, check_size, require_dense, rises


def csr_from_dense(dense: Any) -> CSR:
    """Convert the nonzero entries (including NaN) of a dense matrix to CSR.

    Args:
        dense: (M, N) tensor, or an argument of ``torch.as_tensor``.
    """
    dense = require_dense(dense)
    rows, columns = dense.shape
    # Flat positions are sorted by (row, column).
    flat = dense.reshape(-1)
    places = true_positions(flat.detach().ne(0))
    dtype = index_dtype_for(rows, columns, len(places))
    row = torch.div(places, max(columns, 1), rounding_mode="floor").to(dtype)
    col = (places % max(columns, 1)).to(dtype)
    values = flat.index_select(0, places)
    return CSR(pointers_from_rows(row, rows), col, values, (rows, columns), validate=False)


def from_torch(tensor: Tensor) -> SparseMatrix:
    """Convert a 2-D torch tensor to the format closest to its layout, on its device.

    COO becomes COO, CSR and CSC become CSR, BSR and BSC become BSR, and a strided tensor becomes CSR.
    Duplicates of COO stay, unless the tensor requires grad: torch exposes only its coalesced values.

    Raises:
        TypeError: not a tensor, integer values, or another layout.
        ValueError: not two-dimensional, or a sparse tensor with dense dimensions.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"expected a torch tensor, got {type(tensor).__name__}: use from_scipy or from_dense instead"
        )
    if tensor.layout == torch.strided:
        return csr_from_dense(tensor)
    if tensor.ndim != 2 or tensor.dense_dim():
        raise ValueError(
            f"expected a two-dimensional sparse tensor without dense or batch dimensions, got shape"
            f" {tuple(tensor.shape)} with {tensor.dense_dim()} dense"
        )
    rows, columns = tensor.shape
    if tensor.layout == torch.sparse_coo:
        return _from_torch_coo(tensor)
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    if not by_row and tensor.layout not in (torch.sparse_csc, torch.sparse_bsc):
        raise TypeError(f"layout {tensor.layout} is not supported: use tensor.to_dense()")
    pointers = tensor.crow_indices() if by_row else tensor.ccol_indices()
    indices = tensor.col_indices() if by_row else tensor.row_indices()
    values = tensor.values()
    dtype = index_dtype_for(rows, columns, values.numel())
    pointers, indices = narrow(pointers, dtype), narrow(indices, dtype)
    shape = (rows, columns) if by_row else (columns, rows)
    if values.ndim == 1:
        csr = CSR(pointers, indices, values, shape)
        return csr if by_row else csr.T
    bsr = BSR(pointers, indices, values if by_row else values.transpose(1, 2), shape)
    return bsr if by_row else bsr.T


def _from_torch_coo(tensor: Tensor) -> COO:
    shape = (tensor.shape[0], tensor.shape[1])
    indices = tensor._indices()
    row, col = narrow(indices, index_dtype_for(*shape, indices.shape[1]))
    # torch checks neither is_coalesced nor the range of indices.
    coalesced = True if tensor.is_coalesced() and (not can_read(row) or are_sorted(row, col)) else None
    if tensor.requires_grad and not tensor.is_coalesced():
        COO(row, col, tensor._values().detach(), shape)  # Check indices, as coalesce would write outside.
        tensor, coalesced = tensor.coalesce(), True
        row, col = narrow(tensor._indices(), index_dtype_for(*shape, len(tensor.values())))
    values = tensor.values() if tensor.is_coalesced() else tensor._values()
    return COO(row.contiguous(), col.contiguous(), values, shape, is_coalesced=coalesced)


def from_scipy(matrix: Any) -> SparseMatrix:
    """Convert a scipy sparse matrix to the closest format, on the CPU, without sharing memory.

    BSR becomes BSR and CSR becomes CSR if columns ascend within each row; everything else becomes COO. The
    order is checked, because scipy's own flag misses changes in place.

    Raises:
        TypeError: not a scipy sparse matrix, or values of an unsupported type.
        ValueError: not two-dimensional, or indices outside the matrix; names array and position.
    """
    import scipy.sparse

    if not scipy.sparse.issparse(matrix):
        how = "from_torch" if isinstance(matrix, Tensor) else "from_dense"
        raise TypeError(
            f"expected a scipy sparse matrix or array, got {type(matrix).__name__}: use {how} instead"
        )
    if matrix.ndim != 2:
        raise ValueError(f"expected a two-dimensional sparse array, got shape {matrix.shape}")
    if matrix.format in ("csr", "csc", "bsr"):
        return _from_compressed(matrix)
    coo = matrix.tocoo()
    rows, columns = (int(size) for size in matrix.shape)
    values = _values_from_numpy(coo.data)
    dtype = index_dtype_for(rows, columns, len(values))
    row, col = (_indices_from_numpy(part, dtype) for part in (coo.row, coo.col))
    return COO(row, col, values, (rows, columns))


def _from_compressed(matrix: Any) -> SparseMatrix:
    # Call no scipy function that follows pointers and indices, because they may be wrong.
    rows, columns = (int(size) for size in matrix.shape)
    values = _values_from_numpy(matrix.data)
    dtype = index_dtype_for(rows, columns, values.numel())
    pointers, indices = (_indices_from_numpy(part, dtype) for part in (matrix.indptr, matrix.indices))
    # scipy may allocate more entries than the pointers count.
    stored = min(max(int(pointers[-1]) if len(pointers) else 0, 0), len(indices), len(values))
    indices, values = indices[:stored], values[:stored]
    block = tuple(values.shape[1:]) if matrix.format == "bsr" else (1, 1)
    lines = columns if matrix.format == "csc" else rows // block[0]
    check_size("indptr", pointers, (lines + 1,), "one more than rows, block rows or columns")
    check_pointers("indptr", pointers, stored)
    if matrix.format != "csc" and rises(indices, pointers):
        return (BSR if matrix.format == "bsr" else CSR)(pointers, indices, values, (rows, columns))
    if matrix.format == "bsr":
        places = scalar_places(pointers, indices, (block[0], block[1]))
        row, col = (part.expand(values.shape).reshape(-1).to(dtype) for part in places)
        return COO(row, col, values.reshape(-1), (rows, columns))
    line = expand_pointers(pointers, stored)
    row, col = (indices, line) if matrix.format == "csc" else (line, indices)
    return COO(row, col, values, (rows, columns))


def _values_from_numpy(data: Any) -> Tensor:
    array = np.asarray(data)
    if array.dtype.kind not in "fc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        raise TypeError(
            f"values of scipy dtype {array.dtype} are not supported: convert with matrix.astype('float64')"
            " (or float32, complex64, complex128)"
        )
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _indices_from_numpy(indices: Any, dtype: torch.dtype) -> Tensor:
    return narrow(torch.from_numpy(np.array(indices)), dtype)


operations.from_dense = csr_from_dense
operations.from_scipy = from_scipy
operations.from_torch = from_torch
