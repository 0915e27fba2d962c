"""Incomplete LU factorisations: ILU(0) and ILU(k)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.factorisation.colouring import multicolour_order
from sparse_core.linalg.factorisation.elimination import Elimination, eliminate, lu_elimination
from sparse_core.linalg.factorisation.pattern import (
    Pattern,
    check_diagonal_stored,
    check_factorisable,
    check_same_structure,
    fill,
    pattern_of,
)
from sparse_core.linalg.preconditioner import ApproximateSolver, check_right_side
from sparse_core.linalg.triangular import triangular_solve

#: Reordering of the unknowns before a factorisation.
Reordering = Literal["multicolour"]


@dataclass(frozen=True)
class FactorisationReport:
    """Report of an incomplete factorisation.

    Attributes:
        fill: stored entries of the factors (without the unit diagonal of L) relative to those of the
            factorised part of the matrix; 1 without fill.
        steps: number of sequential elimination levels.
        colours: colours of the ordering, 0 in the given order.
        shift: amount added to the diagonal, in the unit that the factorisation documents.
        smallest_pivot: least magnitude on the diagonal of the factor; inf without rows.
    """

    fill: float
    steps: int
    colours: int
    shift: float
    smallest_pivot: float


@dataclass(frozen=True, eq=False)
class _EliminationPlan:
    """Structure-dependent part of the factorisation."""

    permutation: Tensor | None
    colours: int
    pattern: Pattern
    elimination: Elimination
    diagonal: Tensor
    lower: CSR
    lower_source: Tensor
    upper: CSR
    upper_source: Tensor


class ILUFactors(ApproximateSolver):
    """Factors ``L U`` close to ``P A P^T``, where ``P`` reorders the unknowns.

    Attributes:
        shape: rows and columns.
        lower: (M, M) CSR, unit lower triangular, its ones stored.
        upper: (M, M) CSR, upper triangular.
        permutation: (M,) int64 unknown at each place of the factors, None in the given order.
        report: of the factorisation.
    """

    def __init__(self, matrix: CSR, plan: _EliminationPlan, shift: float) -> None:
        values = plan.pattern.gather(matrix.values.detach())
        if shift and len(values):
            values[plan.diagonal] += shift * values.abs().max()
        factor = eliminate(plan.elimination, values)
        pivot = factor[plan.diagonal].abs()
        _check_pivots(pivot, plan.permutation)
        self._matrix, self._plan = matrix, plan
        self.shape = matrix.shape
        self.permutation = plan.permutation
        padded = torch.cat([factor, factor.new_ones(1)])
        self.lower = plan.lower.with_values(padded[plan.lower_source])
        self.upper = plan.upper.with_values(factor[plan.upper_source])
        self.report = FactorisationReport(
            fill=len(factor) / max(1, matrix.nnz),
            steps=len(plan.elimination.levels),
            colours=plan.colours,
            shift=shift,
            smallest_pivot=float(pivot.min()) if len(pivot) else float("inf"),
        )

    def solve(self, b: Tensor) -> Tensor:
        """Return ``P^T U^-1 L^-1 P b`` for ``b`` of shape (M,) or (M, N)."""
        check_right_side(b, self.shape)
        if self.permutation is None:
            return self._solve_in_place_order(b)
        solution = self._solve_in_place_order(b[self.permutation])
        return torch.empty_like(solution).index_copy_(0, self.permutation, solution)

    def _solve_in_place_order(self, b: Tensor) -> Tensor:
        forward = triangular_solve(self.lower, b, unit_diagonal=True)
        return triangular_solve(self.upper, forward, lower=False)

    def refactor(self, matrix: CSR) -> ILUFactors:
        """Factorise a matrix with the same structure and new values, reusing the schedule.

        Raises:
            ValueError: another structure, or a zero pivot.
        """
        check_same_structure(self._matrix, matrix)
        return ILUFactors(matrix, self._plan, self.report.shift)


def ilu0(matrix: CSR, *, reorder: Reordering | None = None, shift: float = 0.0) -> ILUFactors:
    """Compute the incomplete LU factorisation on the pattern of the matrix, ILU(0).

    The result is that of the row by row (IKJ) algorithm (Saad, Iterative Methods for Sparse Linear Systems,
    algorithm 10.4), computed level by level. The schedule is cached per structure.

    Args:
        matrix: (M, M) CSR, float32, float64 or complex, every diagonal entry stored.
        reorder: ``"multicolour"`` factorises in the order of :func:`multicolour_order`: a triangular solve
            then takes one step per colour, but solvers need somewhat more iterations.
        shift: added to the diagonal, relative to the largest magnitude in the matrix.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, a diagonal entry not stored, or a zero pivot; names the row.
    """
    return iluk(matrix, 0, reorder=reorder, shift=shift)


def iluk(matrix: CSR, level: int, *, reorder: Reordering | None = None, shift: float = 0.0) -> ILUFactors:
    """Compute the incomplete LU factorisation with fill up to a level, ILU(k).

    Fill levels follow Saad, Iterative Methods for Sparse Linear Systems, 10.3.3. Level 0 is :func:`ilu0`,
    which documents the other arguments and errors. From level 1 on, fill couples unknowns of one colour, so a
    triangular solve with ``reorder="multicolour"`` takes more steps than there are colours.

    Args:
        matrix: (M, M) CSR.
        level: highest level of fill, 0 or more.
    """
    check_factorisable(matrix)
    if level < 0:
        raise ValueError(f"level must be 0 or more, got {level}")
    if reorder not in (None, "multicolour"):
        raise ValueError(f"reorder must be None or 'multicolour', got {reorder!r}")
    check_diagonal_stored(matrix)
    plan = matrix.cached(f"ilu.{level}.{reorder}", lambda: _build_plan(matrix, level, reorder))
    return ILUFactors(matrix, plan, shift)


def _build_plan(matrix: CSR, level: int, reorder: Reordering | None) -> _EliminationPlan:
    order = multicolour_order(matrix) if reorder else None
    pattern = fill(pattern_of(matrix, order.permutation if order else None), level)
    index = matrix.col.dtype
    placeholder = matrix.values.detach()[:0]
    below = (pattern.col < pattern.row).nonzero()[:, 0]
    above = (pattern.col >= pattern.row).nonzero()[:, 0]
    diagonal = (pattern.col == pattern.row).nonzero()[:, 0]

    # The last entry of each row of L is its one.
    counts = torch.bincount(pattern.row[below], minlength=pattern.size) + 1
    lower_ptr = torch.cat([counts[:0].new_zeros(1), torch.cumsum(counts, 0)])
    ones = torch.zeros(len(below) + pattern.size, dtype=torch.bool, device=matrix.device)
    ones[lower_ptr[1:] - 1] = True
    lower_col = torch.empty(len(ones), dtype=torch.int64, device=matrix.device)
    lower_source = torch.full_like(lower_col, len(pattern.col))
    lower_col[ones] = torch.arange(pattern.size, device=matrix.device)
    lower_col[~ones], lower_source[~ones] = pattern.col[below], below
    upper_ptr = pattern.row_ptr - (lower_ptr - torch.arange(pattern.size + 1, device=matrix.device))

    def empty(row_ptr: Tensor, col: Tensor) -> CSR:
        values = placeholder.new_zeros(()).expand(len(col))
        return CSR(row_ptr.to(index), col.to(index), values, matrix.shape, validate=False)

    return _EliminationPlan(
        order.permutation if order else None,
        order.colours if order else 0,
        pattern,
        lu_elimination(pattern),
        diagonal,
        empty(lower_ptr, lower_col),
        lower_source,
        empty(upper_ptr, pattern.col[above]),
        above,
    )


def _check_pivots(pivot: Tensor, permutation: Tensor | None) -> None:
    zero = (pivot == 0).nonzero()[:, 0]
    if len(zero):
        row = int(zero[0] if permutation is None else permutation[zero[0]])
        raise ValueError(
            f"zero pivot in row {row}: the incomplete factorisation does not exist; try another ordering"
            " or shift=1e-3"
        )
