"""Sums, elementwise products, rows and diagonals, for all formats through CSR.

Results are bitwise reproducible on every device, and gradients reach the values of all operands.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.common.matrix_operations import operations
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.coo import COO
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import (
    concatenate,
    pointers_from_lengths,
    pointers_from_rows,
    scatter_values,
)


def add(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return ``a + b`` in the promoted type, with an entry wherever either has one."""
    _check_same_shape(a, b)
    left, right = a.to(CSR), b.to(CSR)
    dtype = torch.promote_types(left.dtype, right.dtype)
    row = torch.cat([left.row_indices().long(), right.row_indices().long()])
    col = torch.cat([left.col.long(), right.col.long()])
    values = concatenate(left.values.to(dtype), right.values.to(dtype))
    return COO(row, col, values, a.shape, validate=False).to(CSR)


def multiply(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return the elementwise product in the promoted type, with an entry wherever both have one."""
    _check_same_shape(a, b)
    left, right = a.to(CSR), b.to(CSR)
    row = torch.cat([left.row_indices().long(), right.row_indices().long()])
    col = torch.cat([left.col.long(), right.col.long()])
    # Two stable sorts: a linear key of row and column could overflow 64 bits. At equal places a comes first.
    order = torch.argsort(col, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    row, col = row[order], col[order]
    both = ((row[1:] == row[:-1]) & (col[1:] == col[:-1])).nonzero().squeeze(1)
    values = left.values[order[both]] * right.values[order[both + 1] - left.nnz]
    dtype = index_dtype_for(*a.shape, len(both))
    row_ptr = pointers_from_rows(row[both].to(dtype), a.shape[0])
    return CSR(row_ptr, col[both].to(dtype), values, a.shape, validate=False)


def at_entries(matrix: SparseMatrix, dense: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> CSR:
    """Return ``operation(values, dense)`` at the entries of ``matrix``; ``dense`` broadcasts to its shape."""
    csr = matrix.to(CSR)
    try:
        full = torch.broadcast_to(dense, csr.shape)
    except RuntimeError:
        raise ValueError(
            f"the tensor must broadcast to the matrix's shape {csr.shape}, got {tuple(dense.shape)}"
        ) from None
    if dense.device != csr.device:
        raise ValueError(f"the tensor is on {dense.device} and the matrix on {csr.device}: move one with .to")
    return csr.with_values(operation(csr.values, full[csr.row_indices().long(), csr.col.long()]))


def take_rows(matrix: SparseMatrix, rows: Tensor) -> CSR:
    """Return the given rows in order; (count,) int64 inside the matrix, repeats allowed."""
    csr = matrix.to(CSR)
    lengths = csr.row_lengths().long().index_select(0, rows)
    row_ptr = pointers_from_lengths(lengths, torch.int64)
    first = csr.row_ptr.long().index_select(0, rows) - row_ptr[:-1]
    places = torch.repeat_interleave(first, lengths)
    places += torch.arange(len(places), device=csr.device)
    dtype = index_dtype_for(len(rows), csr.shape[1], len(places))
    # The gradient of indexing sums repeated rows in a fixed order.
    values, shape = csr.values[places], (len(rows), csr.shape[1])
    return CSR(row_ptr.to(dtype), csr.col.index_select(0, places).to(dtype), values, shape, validate=False)


def diagonal(matrix: SparseMatrix, k: int) -> Tensor:
    """Return the k-th diagonal (length,), 0 where nothing is stored."""
    csr, (rows, columns) = matrix.to(CSR), matrix.shape
    length = max(0, min(rows + min(k, 0), columns - max(k, 0)))
    row = csr.row_indices().long()
    entries = (csr.col - row == k).nonzero().squeeze(1)
    return scatter_values(
        csr.values.index_select(0, entries), row.index_select(0, entries) + min(k, 0), length
    )


def _check_same_shape(a: SparseMatrix, b: SparseMatrix) -> None:
    if a.device != b.device:
        raise ValueError(f"matrices are on {a.device} and {b.device}: move them to one with .to")
    if a.shape != b.shape:
        raise ValueError(f"matrices must have the same shape, got {a.shape} and {b.shape}")


operations.add = add
operations.multiply = multiply
operations.at_entries = at_entries
operations.take_rows = take_rows
operations.diagonal = diagonal
