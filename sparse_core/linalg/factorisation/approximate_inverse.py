"""Sparse approximate inverses, which are applied by products only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.linalg.factorisation.pattern import Pattern, check_factorisable, find, pattern_of
from sparse_core.linalg.preconditioner import ApproximateSolver, check_right_side
from sparse_core.linalg.products import spmm
from sparse_core.linalg.spgemm import spgemm
from sparse_core.linalg.structure import transposed
from sparse_core.linalg.triangular.levels import expand_segments

#: Numbers per batch of small dense systems, and the most unknowns of one system.
_CHUNK, _LARGEST = 1 << 23, 1024


class ApproximateInverse(ApproximateSolver):
    """Sparse approximation of the inverse, either one matrix or ``G^T G``.

    Attributes:
        shape: rows and columns.
        factors: (M, M) CSR matrices, applied from the last to the first: one, or ``(G^T, G)``.
    """

    def __init__(self, factors: tuple[CSR, ...]) -> None:
        self.shape = factors[0].shape
        self.factors = factors

    def solve(self, b: Tensor) -> Tensor:
        """Multiply the approximate inverse by ``b``, (M,) or (M, N)."""
        check_right_side(b, self.shape)
        for factor in reversed(self.factors):
            b = spmm(factor, b)
        return b


def sparse_approximate_inverse(
    matrix: CSR, *, pattern: Literal["matrix"] | int = "matrix", symmetric: bool = False
) -> ApproximateInverse:
    """Compute an approximate inverse on a given pattern.

    Each row is a small dense problem; rows with equally many entries are solved in batches. In general row
    ``i`` of ``M`` minimises ``|m_i A - e_i|`` on the pattern, which minimises the Frobenius norm of
    ``M A - I`` (Grote and Huckle, "Parallel preconditioning with sparse approximate inverses", 1997). With
    ``symmetric`` the result is ``G^T G`` with a lower triangular ``G`` on the lower half of the pattern
    (Kolotilina and Yeremin, "Factorized sparse approximate inverse preconditionings", 1993). It is positive
    definite if the matrix is.

    Args:
        matrix: (M, M) CSR, float32, float64 or complex (real with ``symmetric``).
        pattern: ``"matrix"``, or ``n`` for the pattern of the n-th power of the matrix.
        symmetric: the matrix is symmetric positive definite; only its lower triangle is read.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, a power below 1, more than 1024 entries in a row of the pattern, or, with
            ``symmetric``, a matrix that is not positive definite (names the row).
    """
    check_factorisable(matrix)
    power = 1 if pattern == "matrix" else pattern
    if not isinstance(power, int) or power < 1:
        raise ValueError(f"pattern must be 'matrix' or a power of at least 1, got {pattern!r}")
    if symmetric and matrix.dtype.is_complex:
        raise TypeError(f"symmetric=True supports real values, got {matrix.dtype}: use symmetric=False")
    matrix = matrix.detach()
    wanted = _with_diagonal(matrix, power)
    if not symmetric:
        return ApproximateInverse((_assemble(wanted, matrix, _least_squares),))
    lower = _select(wanted, wanted.col <= wanted.row)
    factor = _assemble(lower, matrix, _factor_rows)
    mirror = transposed(factor)
    return ApproximateInverse((mirror.to(CSR), factor))


def _with_diagonal(matrix: CSR, power: int) -> Pattern:
    """Return the positions of the power of the matrix, and of the diagonal."""
    ones = matrix.with_values(torch.ones_like(matrix.values, dtype=torch.float32))
    product = ones
    for _ in range(power - 1):
        # Reset to ones, so that path counts do not overflow.
        product = spgemm(product, ones)
        product = product.with_values(torch.ones_like(product.values))
    positions = pattern_of(product)
    row = torch.arange(positions.size, device=matrix.device)
    keys = torch.unique(torch.cat([positions.keys, row * (positions.size + 1)]))
    rows = keys // max(1, positions.size)
    return Pattern(pointers_from_rows(rows, positions.size), rows, keys - rows * positions.size, keys)


def _select(pattern: Pattern, kept: Tensor) -> Pattern:
    row, col = pattern.row[kept], pattern.col[kept]
    return Pattern(pointers_from_rows(row, pattern.size), row, col, pattern.source[kept])


def _assemble(wanted: Pattern, matrix: CSR, solve: Callable[[Tensor, Tensor, CSR], Tensor]) -> CSR:
    """Assemble the matrix whose rows ``solve`` computes, batch by batch."""
    values = matrix.values.new_zeros(len(wanted.col))
    for rows, places in _batches(wanted):
        values[places] = solve(rows, wanted.col[places], matrix)
    index = matrix.col.dtype
    return CSR(wanted.row_ptr.to(index), wanted.col.to(index), values, matrix.shape, validate=False)


def _batches(wanted: Pattern) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows of equal length: (R,) row numbers and (R, p) places of their entries."""
    length = wanted.row_ptr.diff()
    for size in torch.unique(length).tolist():
        if size > _LARGEST:
            row = int((length == size).nonzero()[0])
            raise ValueError(
                f"row {row} of the pattern has {size} entries, more than the limit of {_LARGEST}: use a"
                " sparser pattern"
            )
        rows = (length == size).nonzero()[:, 0]
        # A least squares problem may have several times more equations than unknowns.
        for part in rows.split(max(1, _CHUNK // (8 * size * size))):
            yield part, wanted.row_ptr[part, None] + torch.arange(size, device=part.device)


def _least_squares(rows: Tensor, columns: Tensor, matrix: CSR) -> Tensor:
    """Minimise ``|sum_a m_a A[columns_a, :] - e_row|`` for each row; (R,) and (R, p) to (R, p)."""
    count, size = columns.shape
    row_ptr = matrix.row_ptr.to(torch.int64)
    start = row_ptr[columns.reshape(-1)]
    slot, entry = expand_segments(start, row_ptr[columns.reshape(-1) + 1] - start)
    problem = slot // size
    # Equations of a problem: the columns of its rows of A, and its own diagonal.
    width = matrix.shape[1]
    keys = problem * width + matrix.col[entry]
    own = torch.arange(count, device=rows.device) * width + rows
    equations, place = torch.unique(torch.cat([keys, own]), return_inverse=True)
    first = pointers_from_rows(equations // width, count)
    equation = place[: len(keys)] - first[problem]
    height = max(size, int(first.diff().max()))

    systems = matrix.values.new_zeros((count, height, size))
    systems[problem, equation, slot % size] = matrix.values[entry]
    unit = matrix.values.new_zeros((count, height, 1))
    unit[torch.arange(count, device=rows.device), place[len(keys) :] - first[:-1]] = 1
    solution: Tensor = torch.linalg.lstsq(systems, unit).solution
    return solution[:, :, 0]


def _factor_rows(rows: Tensor, columns: Tensor, matrix: CSR) -> Tensor:
    """Solve ``A[columns, columns] g = e_last`` for each row, scaled to a unit diagonal of G A G^T."""
    across, down = columns[:, :, None], columns[:, None]
    high, low = torch.maximum(across, down), torch.minimum(across, down)
    place = find(pattern_of(matrix).keys, high * matrix.shape[0] + low)
    if len(matrix.values):
        systems = torch.where(place >= 0, matrix.values[place.clamp(min=0)], 0)
    else:
        systems = torch.zeros(place.shape, dtype=matrix.dtype, device=place.device)
    factor, failed = torch.linalg.cholesky_ex(systems)
    broken = failed.nonzero()[:, 0]
    if len(broken):
        row = int(rows[broken[0]])
        raise ValueError(
            f"matrix is not positive definite in the entries that row {row} of the pattern covers"
        )
    unit = torch.zeros_like(columns, dtype=matrix.dtype)
    unit[:, -1] = 1
    # L L^T g = e_last with g_last = 1 / l_last^2, so the scaled row is L^-T e_last.
    solution: Tensor = torch.linalg.solve_triangular(factor.mT, unit[:, :, None], upper=True)
    return solution[:, :, 0]
