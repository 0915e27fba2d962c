"""What the products need of a matrix besides its values: its CSR form, its transpose, its row sums.

Everything here that does not depend on the values is computed once per structure and kept on the matrix.
"""

from __future__ import annotations

from typing import NamedTuple, overload

import torch
from torch import Tensor

from sparse_core.formats import BSR, CSR, SparseMatrix
from sparse_core.formats.base import Matrix
from sparse_core.linalg.operands import gradient_needed


class TransposePlan(NamedTuple):
    """Where the entries of a matrix lie in its transpose.

    Attributes:
        pattern: the transposed matrix with placeholder values; owns the work plans of the transpose.
        order: (nnz,) entry (BSR: block) of the matrix that each entry of the transpose comes from.
    """

    pattern: CSR | BSR
    order: Tensor


def as_csr(matrix: SparseMatrix) -> CSR:
    """The matrix as CSR; differentiable where a gradient is needed, else converted once and kept.

    Work plans of the CSR structure are kept on ``matrix``, so that training does not rebuild them.
    """
    if isinstance(matrix, CSR):
        return matrix
    if not gradient_needed(matrix):
        return matrix.cached_values("linalg csr", lambda: _converted(matrix.detach()))
    return _converted(matrix)


def _converted(matrix: SparseMatrix) -> CSR:
    csr = matrix.to(CSR)
    pattern: CSR = matrix.cached("linalg csr pattern", lambda: _pattern(csr))
    return pattern.with_values(csr.values)


def _pattern(csr: CSR) -> CSR:
    return CSR(csr.row_ptr, csr.col, _placeholder(csr.values.detach()), csr.shape, validate=False)


def _placeholder(values: Tensor) -> Tensor:
    """Values of the right shape in the memory of one scalar."""
    return values.new_zeros(()).expand(values.shape)


@overload
def transposed(matrix: CSR) -> CSR: ...


@overload
def transposed(matrix: SparseMatrix) -> CSR | BSR: ...


def transposed(matrix: SparseMatrix) -> CSR | BSR:
    """The transpose, not conjugated: BSR for BSR, else CSR; differentiable in the values.

    The permutation of the entries is found once per structure, so products with the transpose gather
    in a fixed order and need no atomic addition.
    """
    if gradient_needed(matrix):
        return _transposed(matrix)
    return matrix.cached_values("linalg transposed", lambda: _transposed(matrix.detach()))


def _transposed(matrix: SparseMatrix) -> CSR | BSR:
    source = matrix if isinstance(matrix, BSR) else as_csr(matrix)
    plan = transpose_plan(source)
    values = source.values.index_select(0, plan.order)
    return plan.pattern.with_values(values.mT.contiguous() if isinstance(source, BSR) else values)


def at_values(matrix: Matrix, values: Tensor | None) -> Matrix:
    """The matrix with the values that an ``autograd.Function`` was given; itself where they are its own.

    They are others in functional transforms, where the matrix holds a wrapped tensor.
    """
    return matrix if values is None or values is matrix.values else matrix.with_values(values)


def transpose_plan(matrix: CSR | BSR) -> TransposePlan:
    """Structure of the transpose and the permutation that leads there; found once."""
    return matrix.cached("linalg transpose", lambda: _plan_transpose(matrix))


def _plan_transpose(matrix: CSR | BSR) -> TransposePlan:
    rows, columns = matrix.shape
    compressed_columns = -(-columns // matrix.block_size[1]) if isinstance(matrix, BSR) else columns
    # A stable sort by column leaves the rows of each column in rising order.
    sorted_col, order = torch.sort(matrix.col, stable=True)
    bounds = torch.arange(compressed_columns + 1, device=matrix.device, dtype=matrix.col.dtype)
    row_ptr = torch.searchsorted(sorted_col, bounds).to(matrix.row_ptr.dtype)
    col = row_of_entry(matrix)[order].to(matrix.col.dtype)
    values = _placeholder(matrix.values.detach())
    if isinstance(matrix, BSR):
        return TransposePlan(BSR(row_ptr, col, values.mT, (columns, rows), validate=False), order)
    return TransposePlan(CSR(row_ptr, col, values, (columns, rows), validate=False), order)


def row_of_entry(matrix: CSR | BSR) -> Tensor:
    """(nnz,) row of every stored entry (BSR: block row of every block), in the type of ``col``."""

    def build() -> Tensor:
        rows = torch.arange(len(matrix.row_ptr) - 1, device=matrix.device, dtype=matrix.col.dtype)
        return rows.repeat_interleave(matrix.row_ptr.diff(), output_size=len(matrix.col))

    return matrix.cached("linalg row of entry", build)


def segment_sum(data: Tensor, offsets: Tensor) -> Tensor:
    """Sums of consecutive slices, each taken on its own: NaN in one does not reach the others.

    Args:
        data: (E, ...) floating or complex.
        offsets: (S + 1,) rising, from 0 to E.

    Returns:
        (S, ...), zero for an empty slice; the order of the additions is fixed on every device.
    """
    segments = len(offsets) - 1
    if data.numel() == 0 or segments == 0:
        return data.new_zeros((segments, *data.shape[1:]))
    if data.is_complex():
        return torch.view_as_complex(segment_sum(torch.view_as_real(data.resolve_conj()), offsets))
    lengths = offsets.diff().long()
    return torch.segment_reduce(data.contiguous(), "sum", lengths=lengths, unsafe=True)
