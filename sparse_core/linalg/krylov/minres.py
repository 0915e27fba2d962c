"""MINRES for Hermitian systems, definite or not, singular or not.

Paige and Saunders, "Solution of sparse indefinite systems of linear equations", 1975: the Lanczos process,
and Givens rotations on its tridiagonal matrix. With a preconditioner the minimised residual is measured in
its norm; ``‖b - A x‖`` itself is tracked too.
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

#: If ``‖A r‖ <= this * eps * ‖A‖ ‖r‖``, no x lowers the residual beyond rounding.
_LEAST = 100


class MinimalResidual(Recurrence):
    """MINRES recurrence in plain torch."""

    method = "minres"

    def __init__(self, problem: LinearSystem) -> None:
        super().__init__(problem)
        # Lanczos vectors before and after the preconditioner, and directions of the solution.
        self.before, self.now, self.towards, self.direction, self.direction_before = (
            torch.zeros_like(self.residual) for _ in range(5)
        )
        names = ("rho", "beta_before", "cosine", "sine", "bar", "epsilon", "bound", "size")
        self.scalars = {name: torch.zeros_like(problem.tolerance) for name in names}
        self.eps = torch.finfo(problem.b.dtype).eps

    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """See :meth:`Recurrence.begin`."""
        self.residual.copy_(residual)
        self.now.copy_(residual)
        self.progress.begin(safe_norms(residual), columns)
        self.towards.copy_(self.problem.correction(self.now))
        for vector in (self.before, self.direction, self.direction_before):
            vector.zero_()
        for scalar in self.scalars.values():
            scalar.zero_()
        rho = column_dots(self.now, self.towards).real
        starts = {"rho": rho, "bound": rho.clamp(min=0).sqrt(), "beta_before": 1, "cosine": -1}
        for name, start in starts.items():
            self.scalars[name].copy_(torch.as_tensor(start))

    def step(self, slot: int) -> None:
        """See :meth:`Recurrence.step`."""
        now, known = self.scalars, self.progress.running
        beta = now["rho"].sqrt()
        vector = self.towards / beta
        image = self.problem.apply(vector) - (beta / now["beta_before"]) * self.before
        alpha = column_dots(vector, image).real
        image = image - (alpha / beta) * self.now
        towards = self.problem.correction(image)
        rho = column_dots(image, towards).real
        beta_next = rho.clamp(min=0).sqrt()

        # Apply the previous rotations to the new column of the tridiagonal matrix.
        delta = now["cosine"] * now["bar"] + now["sine"] * alpha
        gamma_bar = now["sine"] * now["bar"] - now["cosine"] * alpha
        epsilon, bar = now["sine"] * beta_next, -now["cosine"] * beta_next
        # Squared Frobenius norm of the tridiagonal matrix, an estimate for A.
        size = now["size"] + alpha.square() + 2 * beta_next.square()
        # ‖A r‖ / (‖A‖ ‖r‖), 0 for a zero matrix.
        slope = torch.where(size > 0, torch.hypot(gamma_bar, bar) / size.sqrt(), torch.zeros_like(size))
        gamma = torch.hypot(gamma_bar, beta_next)
        cosine, sine = gamma_bar / gamma, beta_next / gamma
        direction = (vector - now["epsilon"] * self.direction_before - delta * self.direction) / gamma
        length = cosine * now["bound"]
        # Rounding error of A x from this step.
        rounding = self.eps * size.sqrt() * length.abs() * column_norms(direction)
        # A step in a direction that A nearly maps to zero may increase the residual by rounding.
        harm = rounding > column_norms(self.residual) * (1 - sine).clamp(min=self.eps**0.5)
        failure = self._failure(rho, alpha, (slope <= _LEAST * self.eps) | harm)
        allowed = known & (failure == 0)
        add_scaled(self.x, length, direction, allowed)
        bound = sine * now["bound"]
        # r = s^2 r - c phi q with the next Lanczos vector q, or zero if there is none.
        following = torch.where(beta_next > 0, image / beta_next, torch.zeros_like(image))
        torch.sub(sine.square() * self.residual, (cosine * bound) * following, out=self.residual)
        self.progress.record(slot, column_norms(self.residual), failure, slope)

        for state, new in (
            (self.before, self.now),
            (self.now, image),
            (self.towards, towards),
            (self.direction_before, self.direction),
            (self.direction, direction),
        ):
            state.copy_(new)
        fresh = (rho, beta, cosine, sine, bar, epsilon, bound, size)
        for state, new in zip(now.values(), fresh, strict=True):
            state.copy_(new)

    def _failure(self, rho: Tensor, alpha: Tensor, least: Tensor) -> Tensor:
        """Return the ``Status`` that forbids a step, 0 where it is allowed."""
        known = self.scalars["rho"]
        failure = torch.where(least, int(Status.LEAST_SQUARES), 0)
        negative = (rho < 0) | (known < 0)
        failure = torch.where(negative, int(Status.PRECONDITIONER_NOT_POSITIVE_DEFINITE), failure)
        finite = torch.isfinite(rho) & torch.isfinite(known) & (torch.isfinite(alpha) | (failure != 0))
        failure = torch.where(finite, failure, int(Status.NOT_FINITE))
        # The previous step exhausted the space.
        return torch.where(known == 0, int(Status.LEAST_SQUARES), failure)


@without_autocast
def minres(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    **options: Unpack[GraphOptions],
) -> SolveResult:
    """Solve ``A x = b`` for a Hermitian A, which may be indefinite or singular, by MINRES.

    If no x solves the system (b is not in the range of a singular A), the solve ends with an x of least
    ``‖b - A x‖``. Then ``converged`` is False and ``reason`` starts with ``"least squares: "``. The tolerance
    is on ``‖b - A x‖`` (scipy's minres uses ``‖A‖ ‖x‖``, and ``5 M`` for ``max_iterations``). The
    preconditioner
    must be a Hermitian positive definite approximation of ``|A|^-1``. Arguments, result and errors are those
    of
    :func:`sparse_core.linalg.cg`, except for A and ``impl``.
    """
    problem = prepare(matrix, b, x0, **options)
    return run(MinimalResidual(problem))
