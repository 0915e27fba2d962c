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

#: How unknowns may be reordered before a factorisation.
Reordering = Literal["multicolour"]


@dataclass(frozen=True)
class FactorisationReport:
    """What an incomplete factorisation did.

    Attributes:
        fill: stored entries of the factors (the unit diagonal of an LU factor not counted) over those of
            the part of the matrix they stand for; 1 without fill.
        steps: groups of entries that were eliminated one after the other.
        colours: colours of the ordering, 0 in the given order.
        shift: what was added to the diagonal, in the unit that the factorisation documents.
        smallest_pivot: least magnitude on the diagonal of the factor; inf without rows.
    """

    fill: float
    steps: int
    colours: int
    shift: float
    smallest_pivot: float


@dataclass(frozen=True, eq=False)
class _EliminationPlan:
    """What depends on the structure alone; see ``_build_plan``."""

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
    """Factors of ``P A P^T``, where ``P`` reorders the unknowns, near ``L U``.

    Attributes:
        shape: rows and columns.
        lower: (M, M) CSR, unit lower triangular, its ones stored.
        upper: (M, M) CSR, upper triangular.
        permutation: (M,) int64 unknown at each place of the factors, None in the given order.
        report: what was done.
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
        """``P^T U^-1 L^-1 P b`` for ``b`` of shape (M,) or (M, N)."""
        check_right_side(b, self.shape)
        if self.permutation is None:
            return self._solve_in_place_order(b)
        solution = self._solve_in_place_order(b[self.permutation])
        return torch.empty_like(solution).index_copy_(0, self.permutation, solution)

    def _solve_in_place_order(self, b: Tensor) -> Tensor:
        forward = triangular_solve(self.lower, b, unit_diagonal=True)
        return triangular_solve(self.upper, forward, lower=False)

    def refactor(self, matrix: CSR) -> ILUFactors:
        """Factors of a matrix with the same structure and new values; the schedule is reused.

        Raises:
            ValueError: another structure, or a zero pivot.
        """
        check_same_structure(self._matrix, matrix)
        return ILUFactors(matrix, self._plan, self.report.shift)


def ilu0(matrix: CSR, *, reorder: Reordering | None = None, shift: float = 0.0) -> ILUFactors:
    """Incomplete LU factorisation on the pattern of the matrix, ILU(0).

    The entries are those of the row by row (IKJ) algorithm (Saad, Iterative Methods for Sparse Linear
    Systems, algorithm 10.4), taken level by level. Which those are is found once per structure.

    Args:
        matrix: (M, M) CSR, float32, float64 or complex, every diagonal entry stored.
        reorder: ``"multicolour"`` factorises in the order of :func:`multicolour_order`: a triangular
            solve then takes a step a colour, at the price of somewhat more iterations.
        shift: added to the diagonal before, as a part of the largest magnitude in the matrix.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, a diagonal entry not stored, or a zero pivot; the row is named.
    """
    return iluk(matrix, 0, reorder=reorder, shift=shift)


def iluk(matrix: CSR, level: int, *, reorder: Reordering | None = None, shift: float = 0.0) -> ILUFactors:
    """Incomplete LU factorisation with fill up to a level, ILU(k).

    The fill is that of Saad, Iterative Methods for Sparse Linear Systems, 10.3.3; level 0 is
    :func:`ilu0`. Arguments and errors are as there.

    Args:
        matrix: (M, M) CSR.
        level: most fill, 0 or more.
        reorder: None or ``"multicolour"``. Fill couples unknowns of one colour, so from level 1 on a
            triangular solve takes more steps than there are colours.
        shift: as in :func:`ilu0`.
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

    # The ones of L end its rows: at place `row_ptr[i + 1] - 1` after as many ones as rows above.
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
            " or a `shift` such as 1e-3"
        )
