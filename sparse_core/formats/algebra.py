"""Sums, elementwise products, rows, diagonals, triangles and stacks, for all formats through CSR.

Results are bitwise reproducible on every device, and gradients reach the values of all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate

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
    return _sum_at_corners([a, b], [(0, 0), (0, 0)], a.shape)


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
    return _csr(row[both].to(dtype), col[both].to(dtype), values, a.shape)


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


def tril(matrix: SparseMatrix, k: int = 0) -> CSR:
    """Return the lower triangle as CSR: the entries on and below the k-th diagonal.

    Args:
        matrix: any format.
        k: 0 is the main diagonal, a positive number lies above it.
    """
    return _keep_diagonals(matrix, lambda above: above <= k)


def triu(matrix: SparseMatrix, k: int = 0) -> CSR:
    """Return the upper triangle as CSR: the entries on and above the k-th diagonal.

    Args:
        matrix: any format.
        k: 0 is the main diagonal, a positive number lies above it.
    """
    return _keep_diagonals(matrix, lambda above: above >= k)


def vstack(matrices: Sequence[SparseMatrix]) -> CSR:
    """Stack matrices vertically, as CSR of the promoted type.

    Args:
        matrices: at least one, of any formats, on one device, with the same number of columns.

    Raises:
        TypeError: not a sparse matrix.
        ValueError: no matrix, or columns or devices that differ.
    """
    columns = _common_size(matrices, axis=1)
    *tops, rows = accumulate((matrix.shape[0] for matrix in matrices), initial=0)
    return _sum_at_corners(matrices, [(top, 0) for top in tops], (rows, columns), is_coalesced=True)


def hstack(matrices: Sequence[SparseMatrix]) -> CSR:
    """Stack matrices horizontally, as CSR of the promoted type.

    Args:
        matrices: at least one, of any formats, on one device, with the same number of rows.

    Raises:
        TypeError: not a sparse matrix.
        ValueError: no matrix, or rows or devices that differ.
    """
    rows = _common_size(matrices, axis=0)
    *lefts, columns = accumulate((matrix.shape[1] for matrix in matrices), initial=0)
    return _sum_at_corners(matrices, [(0, left) for left in lefts], (rows, columns))


def kron(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return the Kronecker product as CSR of the promoted type.

    Args:
        a: (M, N), any format.
        b: (P, Q), any format, on the device of ``a``.

    Returns:
        (M P, N Q), with an entry for every pair of entries.

    Raises:
        TypeError: an operand is not a sparse matrix.
        ValueError: devices that differ.
    """
    _check_matrices([a, b])
    (p, q), left, right = b.shape, a.to(CSR), b.to(CSR)
    shape = (a.shape[0] * p, a.shape[1] * q)
    row = left.row_indices().long()[:, None] * p + right.row_indices().long()
    col = left.col.long()[:, None] * q + right.col.long()
    values = left.values[:, None] * right.values
    row, col, values = (part.reshape(-1) for part in (row, col, values))
    return COO(row, col, values, shape, validate=False).to(CSR)


def _sum_at_corners(
    matrices: Sequence[SparseMatrix],
    corners: Sequence[tuple[int, int]],
    shape: tuple[int, int],
    *,
    is_coalesced: bool | None = None,
) -> CSR:
    # Sum matrices in a matrix of ``shape``, each with its upper left corner at a given position.
    parts = [matrix.to(CSR) for matrix in matrices]
    dtype = reduce(torch.promote_types, (part.dtype for part in parts))
    moved = list(zip(parts, corners, strict=True))
    row = torch.cat([part.row_indices().long() + down for part, (down, _) in moved])
    col = torch.cat([part.col.long() + right for part, (_, right) in moved])
    values = concatenate(*(part.values.to(dtype) for part in parts))
    return COO(row, col, values, shape, is_coalesced=is_coalesced, validate=False).to(CSR)


def _keep_diagonals(matrix: SparseMatrix, keep: Callable[[Tensor], Tensor]) -> CSR:
    # Keep entries by their distance above the main diagonal.
    _check_matrices([matrix])
    csr = matrix.to(CSR)
    row = csr.row_indices()
    kept = keep(csr.col.long() - row.long()).nonzero().squeeze(1)
    row, col, values = (part.index_select(0, kept) for part in (row, csr.col, csr.values))
    return _csr(row, col, values, csr.shape)


def _csr(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> CSR:
    return CSR(pointers_from_rows(row, shape[0]), col, values, shape, validate=False)


def _check_same_shape(a: SparseMatrix, b: SparseMatrix) -> None:
    _check_matrices([a, b])
    if a.shape != b.shape:
        raise ValueError(f"matrices must have the same shape, got {a.shape} and {b.shape}")


def _check_matrices(matrices: Sequence[SparseMatrix]) -> None:
    for matrix in matrices:
        if not isinstance(matrix, SparseMatrix):
            raise TypeError(f"expected a sparse matrix, got {type(matrix).__name__}")
        if matrix.device != matrices[0].device:
            raise ValueError(
                f"matrices are on {matrices[0].device} and {matrix.device}: move them to one with .to"
            )


def _common_size(matrices: Sequence[SparseMatrix], *, axis: int) -> int:
    _check_matrices(matrices)
    sizes = {matrix.shape[axis] for matrix in matrices}
    if len(sizes) != 1:
        shapes = ", ".join(str(matrix.shape) for matrix in matrices) or "none"
        raise ValueError(
            f"expected matrices with the same number of {'columns' if axis else 'rows'}, got {shapes}"
        )
    return sizes.pop()


operations.add = add
operations.multiply = multiply
operations.at_entries = at_entries
operations.take_rows = take_rows
operations.diagonal = diagonal
