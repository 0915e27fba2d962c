"""Sums, elementwise products, rows and diagonals, for all formats through CSR.

Results are bitwise reproducible on every device, and gradients reach the values of all operands.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.common.matrix_operations import operations
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import (
    concatenate,
    pointers_from_lengths,
    pointers_from_rows,
    scatter_values,
)
from sparse_core.kernels.autocast import without_autocast


def add(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return ``a + b`` in the promoted type, with an entry wherever either has one."""
    _check_same_shape(a, b)
    left, right = a.to(CSR), b.to(CSR)
    place, common = _matches(left, right)
    new = (~common).nonzero().squeeze(1)
    common = common.nonzero().squeeze(1)
    # Entry i of the left moves by the new entries of the right that come before it.
    before = torch.bincount(place[new], minlength=left.nnz + 1).cumsum(0)
    positions = torch.cat(
        [
            torch.arange(left.nnz, device=left.device) + before[: left.nnz],
            place[new] + torch.arange(len(new), device=left.device),
        ]
    )
    dtype = torch.promote_types(left.dtype, right.dtype)
    others = right.values.to(dtype)
    values = concatenate(_add_at(left.values.to(dtype), place[common], others[common]), others[new])
    nnz, rows = len(positions), a.shape[0]
    index = index_dtype_for(*a.shape, nnz)
    col = scatter_values(torch.cat([left.col.to(index), right.col[new].to(index)]), positions, nnz)
    lengths = left.row_lengths().long() + torch.bincount(right.row_indices().long()[new], minlength=rows)
    row_ptr = pointers_from_lengths(lengths, index)
    return CSR(row_ptr, col, scatter_values(values, positions, nnz), a.shape, validate=False)


def multiply(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return the elementwise product in the promoted type, with an entry wherever both have one."""
    _check_same_shape(a, b)
    left, right = a.to(CSR), b.to(CSR)
    place, common = _matches(left, right)
    both = common.nonzero().squeeze(1)
    values = left.values[place[both]] * right.values[both]
    dtype = index_dtype_for(*a.shape, len(both))
    row_ptr = pointers_from_rows(right.row_indices()[both].to(dtype), a.shape[0])
    return CSR(row_ptr, right.col[both].to(dtype), values, a.shape, validate=False)


def _matches(left: CSR, right: CSR) -> tuple[Tensor, Tensor]:
    """Return where each entry of ``right`` belongs among those of ``left``, and whether it is there.

    Returns:
        (nnz of right,) int64 number of entries of ``left`` before it; (nnz of right,) bool.
    """
    row = torch.cat([left.row_indices().long(), right.row_indices().long()])
    col = torch.cat([left.col.long(), right.col.long()])
    columns = left.shape[1]
    if left.shape[0] * columns >= 2**63:
        # The linear keys would overflow: number only the columns that occur.
        found, col = torch.unique(col, return_inverse=True)
        columns = len(found)
    keys = row * columns + col
    # Both parts ascend, so a search replaces a sort.
    own, others = keys[: left.nnz], keys[left.nnz :]
    place = torch.searchsorted(own, others)
    return place, torch.cat([own, own.new_tensor([-1])])[place] == others


@without_autocast
def _add_at(values: Tensor, positions: Tensor, added: Tensor) -> Tensor:
    """Return ``values`` with ``added`` at distinct positions, rounded once for half types."""
    return values.index_copy(0, positions, values[positions] + added)


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
