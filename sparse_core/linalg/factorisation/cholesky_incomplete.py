"""Incomplete Cholesky factorisation without fill, shifted if it breaks down."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.errors import FactorisationWarning
from sparse_core.formats import CSR
from sparse_core.linalg.factorisation.colouring import multicolour_order
from sparse_core.linalg.factorisation.elimination import Elimination, cholesky_elimination, eliminate
from sparse_core.linalg.factorisation.ilu import FactorisationReport, Reordering
from sparse_core.linalg.factorisation.pattern import (
    Pattern,
    check_diagonal_stored,
    check_factorisable,
    check_same_structure,
    find,
    pattern_of,
)
from sparse_core.linalg.preconditioner import ApproximateSolver, check_right_side
from sparse_core.linalg.triangular import triangular_solve

#: First shift after a breakdown, its growth factor, and its limit.
_FIRST_SHIFT, _GROWTH, _LARGEST_SHIFT = 1e-3, 2.0, 1e3


@dataclass(frozen=True, eq=False)
class _CholeskyPlan:
    """Structure-dependent part of the factorisation."""

    permutation: Tensor | None
    colours: int
    mirror: Tensor
    pattern: Pattern
    elimination: Elimination
    diagonal: Tensor
    lower: CSR


class ICFactors(ApproximateSolver):
    """Factor ``L`` with ``L L^T`` close to ``P A P^T``, where ``P`` reorders the unknowns.

    Attributes:
        shape: rows and columns.
        lower: (M, M) CSR, lower triangular with a positive diagonal.
        permutation: (M,) int64 unknown at each place of the factor, None in the given order.
        shift: the factor is that of ``A + shift diag(A)``; 0 if none was needed.
        report: of the factorisation.
    """

    def __init__(self, matrix: CSR, plan: _CholeskyPlan, shift: float | None) -> None:
        _check_symmetric(matrix, plan.mirror)
        values = plan.pattern.gather(matrix.values.detach())
        _check_diagonal_positive(values[plan.diagonal], plan.permutation)
        factor, self.shift = _factorise(plan, values, shift)
        self._matrix, self._plan, self._wanted_shift = matrix, plan, shift
        self.shape = matrix.shape
        self.permutation = plan.permutation
        self.lower = plan.lower.with_values(factor)
        pivot = factor[plan.diagonal]
        self.report = FactorisationReport(
            fill=1.0,
            steps=len(plan.elimination.levels),
            colours=plan.colours,
            shift=self.shift,
            smallest_pivot=float(pivot.min()) if len(pivot) else float("inf"),
        )

    def solve(self, b: Tensor) -> Tensor:
        """Return ``P^T L^-T L^-1 P b`` for ``b`` of shape (M,) or (M, N)."""
        check_right_side(b, self.shape)
        right = b if self.permutation is None else b[self.permutation]
        solution = triangular_solve(self.lower, triangular_solve(self.lower, right), transpose=True)
        if self.permutation is None:
            return solution
        return torch.empty_like(solution).index_copy_(0, self.permutation, solution)

    def refactor(self, matrix: CSR) -> ICFactors:
        """Factorise a matrix with the same structure and new values, reusing the schedule.

        Raises:
            ValueError: another structure, not symmetric, or not positive definite.
        """
        check_same_structure(self._matrix, matrix)
        return ICFactors(matrix, self._plan, self._wanted_shift)


def ic0(matrix: CSR, *, shift: float | None = None, reorder: Reordering | None = None) -> ICFactors:
    """Compute the incomplete Cholesky factorisation on the pattern of the lower triangle, IC(0).

    A pivot may be non-positive even for a positive definite matrix. Then the diagonal is scaled by
    ``1 + shift`` with a growing shift until the factorisation succeeds (Manteuffel, "An incomplete
    factorization technique for positive definite linear systems", 1980), and a ``FactorisationWarning`` is
    issued.

    Args:
        matrix: (M, M) CSR, float32 or float64, symmetric with both triangles stored, every diagonal entry
            stored and positive.
        shift: None finds one if needed; a number is used as it is.
        reorder: ``"multicolour"`` factorises in the order of :func:`multicolour_order`.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, not symmetric, a diagonal entry not stored or not positive, or a breakdown
            with the given shift; names the row.
    """
    check_factorisable(matrix)
    if matrix.dtype.is_complex:
        raise TypeError(f"ic0 supports real values, got {matrix.dtype}: use ilu0")
    if shift is not None and not shift >= 0:
        raise ValueError(f"shift must be 0 or more, got {shift}")
    if reorder not in (None, "multicolour"):
        raise ValueError(f"reorder must be None or 'multicolour', got {reorder!r}")
    check_diagonal_stored(matrix)
    plan = matrix.cached(f"ic0.{reorder}", lambda: _build_plan(matrix, reorder))
    return ICFactors(matrix, plan, shift)


def _build_plan(matrix: CSR, reorder: Reordering | None) -> _CholeskyPlan:
    plain = pattern_of(matrix)
    mirror = find(plain.keys, plain.col * plain.size + plain.row)
    unpaired = (mirror < 0).nonzero()[:, 0]
    if len(unpaired):
        entry = int(unpaired[0])
        raise ValueError(
            f"matrix is not symmetric: it stores ({int(plain.row[entry])}, {int(plain.col[entry])}) and not"
            " its mirror image: store both triangles, or use ilu0, which takes any matrix"
        )
    order = multicolour_order(matrix) if reorder else None
    whole = pattern_of(matrix, order.permutation) if order else plain
    kept = (whole.col <= whole.row).nonzero()[:, 0]
    row_ptr = torch.searchsorted(kept, whole.row_ptr)
    lower = Pattern(row_ptr, whole.row[kept], whole.col[kept], whole.source[kept])
    index = matrix.col.dtype
    values = matrix.values.detach().new_zeros(()).expand(len(kept))
    return _CholeskyPlan(
        order.permutation if order else None,
        order.colours if order else 0,
        mirror,
        lower,
        cholesky_elimination(lower),
        row_ptr[1:] - 1,
        CSR(row_ptr.to(index), lower.col.to(index), values, matrix.shape, validate=False),
    )


def _check_symmetric(matrix: CSR, mirror: Tensor) -> None:
    values = matrix.values.detach()
    if len(values) == 0:
        return
    # Assembled matrices are symmetric only up to rounding.
    allowed = torch.finfo(values.dtype).eps ** 0.5 * values.abs().max()
    wrong = ((values - values[mirror]).abs() > allowed).nonzero()[:, 0]
    if len(wrong):
        entry = int(wrong[0])
        row = int(torch.searchsorted(matrix.row_ptr, entry, right=True)) - 1
        raise ValueError(
            f"matrix is not symmetric: entry ({row}, {int(matrix.col[entry])}) is {float(values[entry]):g},"
            f" its mirror image {float(values[mirror[entry]]):g} (ilu0 takes any matrix)"
        )


def _check_diagonal_positive(diagonal: Tensor, permutation: Tensor | None) -> None:
    bad = (diagonal <= 0).nonzero()[:, 0]
    if len(bad):
        place = int(bad[0])
        row = place if permutation is None else int(permutation[place])
        raise ValueError(
            f"matrix is not positive definite: the diagonal of row {row} is {float(diagonal[place]):g}"
        )


def _factorise(plan: _CholeskyPlan, values: Tensor, wanted: float | None) -> tuple[Tensor, float]:
    """Return the factor and its shift."""
    shift = wanted or 0.0
    while True:
        shifted = values.clone()
        shifted[plan.diagonal] *= 1 + shift
        factor = eliminate(plan.elimination, shifted)
        broken = ~(factor[plan.diagonal] > 0)
        if not bool(broken.any()):
            break
        if wanted is not None or shift > _LARGEST_SHIFT:
            place = int(broken.nonzero()[0])
            row = place if plan.permutation is None else int(plan.permutation[place])
            raise ValueError(
                f"incomplete Cholesky breaks down in row {row} with shift {shift:g}: the pivot is not"
                " positive; use shift=None to find a sufficient shift"
            )
        shift = shift * _GROWTH or _FIRST_SHIFT
    if shift and wanted is None:
        warnings.warn(
            f"incomplete Cholesky broke down; the factor is that of A + {shift:g} diag(A)",
            FactorisationWarning,
            stacklevel=4,
        )
    return factor, shift
