"""Recurrence of conjugate gradients for Hermitian positive definite systems.

Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952; with
preconditioning as in Saad, "Iterative methods for sparse linear systems", 2003, algorithm 9.1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparse_core.linalg.krylov.problem import LinearSystem, column_dots, column_norms, safe_norms
from sparse_core.linalg.krylov.progress import Status, add_scaled
from sparse_core.linalg.krylov.recurrence import Recurrence


class ConjugateGradient(Recurrence):
    """Conjugate gradient recurrence in plain torch."""

    method = "cg"

    def __init__(self, problem: LinearSystem) -> None:
        super().__init__(problem)
        self.direction = torch.empty_like(self.residual)
        self.rho = torch.empty_like(problem.tolerance)

    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """See :meth:`Recurrence.begin`."""
        self.residual.copy_(residual)
        self.progress.begin(safe_norms(residual), columns)
        correction = self.problem.correction(self.residual)
        self.direction.copy_(correction)
        self.rho.copy_(column_dots(self.residual, correction).real)

    def step(self, slot: int) -> None:
        """See :meth:`Recurrence.step`."""
        product = self.problem.apply(self.direction)
        curvature = column_dots(self.direction, product).real
        failure = _failure(self.rho, curvature)
        allowed = self.progress.allows(failure)
        alpha = self.rho / curvature
        add_scaled(self.x, alpha, self.direction, allowed)
        add_scaled(self.residual, -alpha, product, allowed)
        self.progress.record(slot, column_norms(self.residual), failure, curvature)
        correction = self.problem.correction(self.residual)
        rho = column_dots(self.residual, correction).real
        beta = (rho / self.rho).to(self.direction.dtype)
        torch.addcmul(correction, self.direction, beta, out=self.direction)
        self.rho.copy_(rho)


def _failure(rho: Tensor, curvature: Tensor) -> Tensor:
    """Return the ``Status`` that forbids a step, 0 where it is allowed."""
    if rho.ndim == 0 and not rho.is_cuda:
        return torch.tensor(int(_failure_of_numbers(rho.item(), curvature.item())))
    failure = torch.where(curvature > 0, 0, int(Status.NOT_POSITIVE_DEFINITE))
    failure = torch.where(rho > 0, failure, int(Status.PRECONDITIONER_NOT_POSITIVE_DEFINITE))
    finite = torch.isfinite(rho) & torch.isfinite(curvature)
    return torch.where(finite, failure, int(Status.NOT_FINITE))


def _failure_of_numbers(rho: float, curvature: float) -> int:
    """Return what :func:`_failure` returns, for one right-hand side on a CPU."""
    if not (math.isfinite(rho) and math.isfinite(curvature)):
        return Status.NOT_FINITE
    if rho <= 0:
        return Status.PRECONDITIONER_NOT_POSITIVE_DEFINITE
    return 0 if curvature > 0 else Status.NOT_POSITIVE_DEFINITE
