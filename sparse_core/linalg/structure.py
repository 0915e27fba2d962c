"""Structure of a matrix for the products: its CSR form, its transpose, its row sums.

Anything that does not depend on the values is computed once per structure and cached on the matrix.
"""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from sparse_core.formats import BSR, CSR, SparseMatrix
from sparse_core.formats.base import Matrix
from sparse_core.formats.indexing import expand_pointers
from sparse_core.linalg.operands import gradient_needed


def as_csr(matrix: SparseMatrix) -> CSR:
    """Convert to CSR, differentiably if a gradient is needed, else once and cached.

    Work plans of the CSR structure are cached on ``matrix``, so that training does not rebuild them.
    """
    if isinstance(matrix, CSR):
        return matrix
    if not gradient_needed(matrix):
        return matrix.cached_values("linalg csr", lambda: _convert(matrix.detach()))
    return _convert(matrix)


def _convert(matrix: SparseMatrix) -> CSR:
    csr = matrix.to(CSR)
    pattern: CSR = matrix.cached("linalg csr pattern", lambda: _pattern(csr))
    return pattern.with_values(csr.values)


def _pattern(csr: CSR) -> CSR:
    # All values share the memory of one scalar.
    values = csr.values.detach().new_zeros(()).expand(csr.values.shape)
    return CSR(csr.row_ptr, csr.col, values, csr.shape, validate=False)


@overload
def transposed(matrix: CSR) -> CSR: ...


@overload
def transposed(matrix: SparseMatrix) -> CSR | BSR: ...


def transposed(matrix: SparseMatrix) -> CSR | BSR:
    """Return the transpose, not conjugated: BSR for BSR, else CSR; differentiable in the values.

    The permutation of the entries is cached per structure, so products with the transpose sum in a fixed
    order and need no atomic addition.
    """
    if gradient_needed(matrix):
        return _transpose(matrix)
    return matrix.cached_values("linalg transposed", lambda: _transpose(matrix.detach()))


def _transpose(matrix: SparseMatrix) -> CSR | BSR:
    return matrix.T if isinstance(matrix, BSR) else as_csr(matrix).T


def at_values(matrix: Matrix, values: Tensor | None) -> Matrix:
    """Return the matrix with the values of an ``autograd.Function``, which transforms may have wrapped."""
    return matrix if values is None or values is matrix.values else matrix.with_values(values)


def row_of_entry(matrix: CSR | BSR) -> Tensor:
    """Return the row of every stored entry (BSR: block row of every block), (nnz,) in the type of ``col``."""

    return matrix.cached("row_indices", lambda: expand_pointers(matrix.row_ptr, len(matrix.col)))


def cut_rows(row_ptr: Tensor, rows: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut some rows into pieces of at most ``size`` entries.

    Args:
        row_ptr: (M + 1,) integer.
        rows: (L,) numbers of the rows.

    Returns:
        (L + 1,) first piece of each row; (P,) first entry of each piece and one past its last; all int64.
    """
    start, end = row_ptr[rows].long(), row_ptr[rows + 1].long()
    pieces = (end - start + size - 1) // size
    first_piece = torch.nn.functional.pad(pieces.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(pieces)
    within = torch.arange(len(owner), device=owner.device) - first_piece[owner]
    piece_start = start[owner] + within * size
    return first_piece, piece_start, torch.minimum(piece_start + size, end[owner])


def segment_sum(data: Tensor, offsets: Tensor) -> Tensor:
    """Sum consecutive slices separately: NaN in one does not reach the others.

    Args:
        data: (E, ...) floating or complex.
        offsets: (S + 1,) ascending, from 0 to E.

    Returns:
        (S, ...), zero for an empty slice; the order of the sums is fixed on every device.
    """
    segments = len(offsets) - 1
    if data.numel() == 0 or segments == 0:
        return data.new_zeros((segments, *data.shape[1:]))
    if data.is_complex():
        return torch.view_as_complex(segment_sum(torch.view_as_real(data.resolve_conj()), offsets))
    lengths = offsets.diff().long()
    return torch.segment_reduce(data.contiguous(), "sum", lengths=lengths, unsafe=True)
