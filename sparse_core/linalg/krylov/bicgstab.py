"""BiCGSTAB for general systems.

Van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of nonsymmetric
linear systems", 1992; preconditioned from the right, so that its residual is that of ``A x = b``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.krylov.loop import run
from sparse_core.linalg.krylov.problem import (
    GraphOptions,
    LinearSystem,
    Operand,
    column_dots,
    column_norms,
    prepare,
    safe_norms,
)
from sparse_core.linalg.krylov.progress import Status, add_scaled
from sparse_core.linalg.krylov.recurrence import Recurrence
from sparse_core.linalg.krylov.result import SolveResult


class BiconjugateGradientStabilised(Recurrence):
    """BiCGSTAB recurrence in plain torch."""

    method = "bicgstab"

    def __init__(self, problem: LinearSystem) -> None:
        super().__init__(problem)
        self.shadow, self.direction, self.image = (torch.zeros_like(self.residual) for _ in range(3))
        scalar = problem.tolerance.to(problem.b.dtype)
        self.rho, self.alpha, self.omega = (torch.ones_like(scalar) for _ in range(3))
        self.shadow_norm = torch.ones_like(problem.tolerance)
        self.norm = torch.ones_like(problem.tolerance)
        # scipy's threshold, but relative to the vectors, so that the scale of b does not matter.
        self.vanishing = torch.finfo(problem.b.dtype).eps ** 2

    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """See :meth:`Recurrence.begin`."""
        norm = safe_norms(residual)
        self.progress.begin(norm, columns)
        self.residual.copy_(residual)
        self.shadow.copy_(residual)
        self.norm.copy_(norm)
        self.shadow_norm.copy_(norm)
        for vector in (self.direction, self.image):
            vector.zero_()
        for scalar in (self.rho, self.alpha, self.omega):
            scalar.fill_(1)

    def step(self, slot: int) -> None:
        """See :meth:`Recurrence.step`."""
        rho = column_dots(self.shadow, self.residual)
        beta = (rho / self.rho) * (self.alpha / self.omega)
        self.direction.sub_(self.omega * self.image).mul_(beta).add_(self.residual)
        towards = self.problem.correction(self.direction)
        self.image.copy_(self.problem.apply(towards))
        denominator = column_dots(self.shadow, self.image)
        alpha = rho / denominator
        half = self.residual - alpha * self.image
        half_norm = column_norms(half)
        correction = self.problem.correction(half)
        image = self.problem.apply(correction)
        omega = self._omega(image, half, half_norm)

        failure = self._failure(rho, denominator, column_norms(self.image))
        finite = torch.isfinite(omega.abs()) | (failure != 0)
        failure = torch.where(finite, failure, int(Status.NOT_FINITE))
        allowed = self.progress.allows(failure)
        add_scaled(self.x, alpha, towards, allowed)
        add_scaled(self.x, omega, correction, allowed)
        torch.sub(half, omega * image, out=self.residual)
        self.norm.copy_(column_norms(self.residual))
        detail = torch.where(failure == int(Status.DENOMINATOR_VANISHED), denominator.abs(), rho.abs())
        self.progress.record(slot, self.norm, failure, detail)
        for state, new in ((self.rho, rho), (self.alpha, alpha), (self.omega, omega)):
            state.copy_(new)

    def _omega(self, image: Tensor, half: Tensor, half_norm: Tensor) -> Tensor:
        """Return the length of the minimising step; zero after half a step or without effect."""
        image_norm = column_norms(image)
        overlap = column_dots(image, half)
        useless = overlap.abs() <= self.vanishing * image_norm * half_norm
        enough = half_norm <= self.progress.tolerance
        # For a column of zeros this is 0 / 0, which `useless` masks.
        return torch.where(useless | enough, torch.zeros_like(overlap), overlap / image_norm.square())

    def _failure(self, rho: Tensor, denominator: Tensor, image_norm: Tensor) -> Tensor:
        """Return the ``Status`` that forbids a step, 0 where it is allowed."""
        rho_small = rho.abs() <= self.vanishing * self.shadow_norm * self.norm
        small = denominator.abs() <= self.vanishing * self.shadow_norm * image_norm
        failure = torch.where(small, int(Status.DENOMINATOR_VANISHED), 0)
        failure = torch.where(rho_small, int(Status.RHO_VANISHED), failure)
        failure = torch.where(self.omega == 0, int(Status.OMEGA_VANISHED), failure)
        finite = torch.isfinite(rho.abs()) & torch.isfinite(denominator.abs())
        return torch.where(finite | (failure != 0), failure, int(Status.NOT_FINITE))


@without_autocast
def bicgstab(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    **options: Unpack[GraphOptions],
) -> SolveResult:
    """Solve ``A x = b`` for a general square A by BiCGSTAB.

    Each iteration has two products with A; one that reaches the tolerance after its first half also counts. A
    breakdown (division by a vanishing number) ends the loop with its reason and the last iterate; use gmres
    then. Arguments, result and errors are those of :func:`sparse_core.linalg.cg`, except for A and ``impl``.
    """
    problem = prepare(matrix, b, x0, **options)
    return run(BiconjugateGradientStabilised(problem))
