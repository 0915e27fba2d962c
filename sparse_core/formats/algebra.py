"""Sums, elementwise products, rows and diagonals, for all formats through CSR.

Results are bitwise reproducible on every device, and gradients reach the values of all operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparse_core.common.matrix_operations import operations
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import (
    pointers_from_lengths,
    pointers_from_rows,
    scatter_values,
    scipy_can_read,
    true_positions,
)
from sparse_core.kernels.autocast import without_autocast


class _Union(NamedTuple):
    """Structure with an entry wherever one of two matrices has one.

    Attributes:
        row_ptr: (M + 1,) of the narrowest index type.
        col: (nnz,) of the same type.
        left, right: (nnz of the operand,) int64 position of each of its entries.
    """

    row_ptr: Tensor
    col: Tensor
    left: Tensor
    right: Tensor


def add(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return ``a + b`` in the promoted type, with an entry wherever either has one."""
    _check_same_shape(a, b)
    left, right = a.to(CSR), b.to(CSR)
    union = (_merge_by_scipy if scipy_can_read(left.col) else _merge)(left, right)
    dtype = torch.promote_types(left.dtype, right.dtype)
    values = scatter_values(left.values.to(dtype), union.left, len(union.col))
    values = _add_at(values, union.right, right.values.to(dtype))
    return CSR(union.row_ptr, union.col, values, a.shape, validate=False)


def multiply(a: SparseMatrix, b: SparseMatrix) -> CSR:
    """Return the elementwise product in the promoted type, with an entry wherever both have one."""
    _check_same_shape(a, b)
    left, right = a.to(CSR), b.to(CSR)
    ours, theirs = (_match_by_scipy if scipy_can_read(left.col) else _match)(left, right)
    values = left.values.index_select(0, ours) * right.values.index_select(0, theirs)
    dtype = index_dtype_for(*a.shape, len(theirs))
    rows = right.row_indices().index_select(0, theirs).to(dtype)
    col = right.col.index_select(0, theirs).to(dtype)
    return CSR(pointers_from_rows(rows, a.shape[0]), col, values, a.shape, validate=False)


def _mark_owners(left: CSR, right: CSR) -> Any:
    """Return scipy's union of two structures on a CPU; the values are 1 (left), 2 (right) or 3 (both)."""
    import scipy.sparse

    # These values never sum to zero, which scipy would drop.
    marked = (
        scipy.sparse.csr_array(
            (np.full(matrix.nnz, mark, dtype=np.int8), matrix.col.numpy(), matrix.row_ptr.numpy()),
            shape=matrix.shape,
        )
        for mark, matrix in ((1, left), (2, right))
    )
    return next(marked) + next(marked)


def _merge_by_scipy(left: CSR, right: CSR) -> _Union:
    owners = _mark_owners(left, right)
    index = index_dtype_for(*left.shape, owners.nnz)
    row_ptr, col = (torch.from_numpy(part).to(index) for part in (owners.indptr, owners.indices))
    return _Union(row_ptr, col, *(_find(owners.data != other) for other in (2, 1)))


def _match_by_scipy(left: CSR, right: CSR) -> tuple[Tensor, Tensor]:
    """Return the entries of each operand at places where both have one, (nnz of the product,) int64."""
    owners = _mark_owners(left, right).data
    both = np.flatnonzero(owners == 3)
    ours = np.cumsum(owners != 2)[both] - 1
    # A place has as many entries before it in both operands as places and shared places before it.
    theirs = both - ours + np.arange(len(both))
    return torch.from_numpy(ours), torch.from_numpy(theirs)


def _find(mask: Any) -> Tensor:
    # Several times as fast as torch's nonzero.
    return torch.from_numpy(np.flatnonzero(mask))


def _merge(left: CSR, right: CSR) -> _Union:
    place, common = _search(left, right)
    new = (~common).nonzero().squeeze(1)
    # Entry i of the left moves by the new entries of the right that come before it.
    before = torch.bincount(place[new], minlength=left.nnz + 1).cumsum(0)
    of_left = torch.arange(left.nnz, device=left.device) + before[: left.nnz]
    # A new entry of the right moves by the entries of the left and the new ones before it.
    of_right = torch.where(common, of_left.new_zeros(1), place + (~common).cumsum(0) - 1)
    both = common.nonzero().squeeze(1)
    of_right[both] = of_left[place[both]]
    nnz, rows = left.nnz + len(new), left.shape[0]
    index = index_dtype_for(*left.shape, nnz)
    col = scatter_values(left.col.to(index), of_left, nnz).index_copy(0, of_right, right.col.to(index))
    lengths = left.row_lengths().long() + torch.bincount(right.row_indices().long()[new], minlength=rows)
    return _Union(pointers_from_lengths(lengths, index), col, of_left, of_right)


def _match(left: CSR, right: CSR) -> tuple[Tensor, Tensor]:
    """Return what :func:`_match_by_scipy` returns, on any device."""
    place, common = _search(left, right)
    both = common.nonzero().squeeze(1)
    return place[both], both


def _search(left: CSR, right: CSR) -> tuple[Tensor, Tensor]:
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
    return values.index_add(0, positions, added)


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


def take_rows(matrix: SparseMatrix, rows: Tensor | range) -> CSR:
    """Return the given rows in order; a range, or (count,) int64, inside the matrix; repeats allowed."""
    csr = matrix.to(CSR)
    if isinstance(rows, range):
        if rows.step == 1:
            return _cut_rows(csr, rows)
        rows = torch.tensor(rows, device=csr.device, dtype=torch.int64)
    lengths = csr.row_lengths().long().index_select(0, rows)
    row_ptr = pointers_from_lengths(lengths, torch.int64)
    first = csr.row_ptr.long().index_select(0, rows) - row_ptr[:-1]
    places = torch.repeat_interleave(first, lengths)
    places += torch.arange(len(places), device=csr.device)
    dtype = index_dtype_for(len(rows), csr.shape[1], len(places))
    # The gradient of indexing sums repeated rows in a fixed order.
    values, shape = csr.values[places], (len(rows), csr.shape[1])
    return CSR(row_ptr.to(dtype), csr.col.index_select(0, places).to(dtype), values, shape, validate=False)


def _cut_rows(csr: CSR, rows: range) -> CSR:
    """Return consecutive rows, copied."""
    row_ptr = csr.row_ptr[rows.start : rows.start + len(rows) + 1]
    if not len(rows):
        row_ptr = csr.row_ptr.new_zeros(1)
    first, last = (int(row_ptr[at]) for at in (0, -1))
    col, values = csr.col[first:last], csr.values[first:last]
    shape = (len(rows), csr.shape[1])
    index = index_dtype_for(*shape, last - first)
    return CSR((row_ptr - first).to(index), col.to(index, copy=True), values.clone(), shape, validate=False)


def take_columns(matrix: SparseMatrix, columns: Tensor | range) -> CSR:
    """Return the given columns in order; a range, or (count,) int64, inside the matrix; repeats allowed."""
    csr = matrix.to(CSR)
    if not isinstance(columns, range) or columns.step != 1:
        return take_rows(csr.T, columns).T
    kept = true_positions((csr.col >= columns.start) & (csr.col < columns.start + len(columns)))
    shape = (csr.shape[0], len(columns))
    index = index_dtype_for(*shape, len(kept))
    row_ptr = torch.searchsorted(kept, csr.row_ptr.long(), out_int32=index == torch.int32)
    col = (csr.col.index_select(0, kept) - columns.start).to(index)
    return CSR(row_ptr, col, csr.values.index_select(0, kept), shape, validate=False)


def diagonal(matrix: SparseMatrix, k: int) -> Tensor:
    """Return the k-th diagonal (length,), 0 where nothing is stored."""
    csr, (rows, columns) = matrix.to(CSR), matrix.shape
    length = max(0, min(rows + min(k, 0), columns - max(k, 0)))
    row = csr.row_indices().long()
    entries = true_positions(csr.col - row == k)
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
operations.take_columns = take_columns
operations.diagonal = diagonal
