"""MINRES for Hermitian systems, definite or not, singular or not.

Paige and Saunders, "Solution of sparse indefinite systems of linear equations", 1975: the Lanczos process,
and Givens rotations on its tridiagonal matrix. With a preconditioner the residual that is minimised is
measured by it; ``‖b - A x‖`` itself is followed beside it.
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

#: ``‖A r‖ <= this * eps * ‖A‖ ‖r‖``: no x brings the residual down, as far as rounding lets that be seen.
_LEAST = 100


class MinimalResidual(Recurrence):
    """The recurrence in plain torch."""

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

        # The rotations of the steps before, applied to the new column of the tridiagonal matrix.
        delta = now["cosine"] * now["bar"] + now["sine"] * alpha
        gamma_bar = now["sine"] * now["bar"] - now["cosine"] * alpha
        epsilon, bar = now["sine"] * beta_next, -now["cosine"] * beta_next
        # Square of the Frobenius norm of the tridiagonal matrix, which stands for A.
        size = now["size"] + alpha.square() + 2 * beta_next.square()
        # ‖A r‖ over ‖A‖ ‖r‖; nothing at all is flat.
        slope = torch.where(size > 0, torch.hypot(gamma_bar, bar) / size.sqrt(), torch.zeros_like(size))
        gamma = torch.hypot(gamma_bar, beta_next)
        cosine, sine = gamma_bar / gamma, beta_next / gamma
        direction = (vector - now["epsilon"] * self.direction_before - delta * self.direction) / gamma
        length = cosine * now["bound"]
        # What rounding of such a step alone leaves in A x.
        rounding = self.eps * size.sqrt() * length.abs() * column_norms(direction)
        # A step in a direction that A hardly sees may do more harm than good.
        harm = rounding > column_norms(self.residual) * (1 - sine).clamp(min=self.eps**0.5)
        failure = self._failure(rho, alpha, (slope <= _LEAST * self.eps) | harm)
        allowed = known & (failure == 0)
        add_scaled(self.x, length, direction, allowed)
        bound = sine * now["bound"]
        # r = s^2 r - c phi q with the next Lanczos vector q, which is zero where there is none.
        following = torch.where(beta_next > 0, image / beta_next, torch.zeros_like(image))
        torch.sub(sine.square() * self.residual, (cosine * bound) * following, out=self.residual)
        self.progress.record(slot, column_norms(self.residual), failure, slope)

        for kept, new in (
            (self.before, self.now),
            (self.now, image),
            (self.towards, towards),
            (self.direction_before, self.direction),
            (self.direction, direction),
        ):
            kept.copy_(new)
        fresh = (rho, beta, cosine, sine, bar, epsilon, bound, size)
        for kept, new in zip(now.values(), fresh, strict=True):
            kept.copy_(new)

    def _failure(self, rho: Tensor, alpha: Tensor, least: Tensor) -> Tensor:
        """Why a step cannot be taken: ``Status`` of each column, 0 where it can."""
        known = self.scalars["rho"]
        failure = torch.where(least, int(Status.LEAST_SQUARES), 0)
        negative = (rho < 0) | (known < 0)
        failure = torch.where(negative, int(Status.PRECONDITIONER_NOT_POSITIVE_DEFINITE), failure)
        finite = torch.isfinite(rho) & torch.isfinite(known) & (torch.isfinite(alpha) | (failure != 0))
        failure = torch.where(finite, failure, int(Status.NOT_FINITE))
        # The space was exhausted by the step before.
        return torch.where(known == 0, int(Status.LEAST_SQUARES), failure)


@without_autocast
def minres(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    **options: Unpack[GraphOptions],
) -> SolveResult:
    """Solve ``A x = b`` for a Hermitian A, which may be indefinite or singular, by MINRES.

    Where no x solves the system (A is singular and b not in its range), the solve ends with an x of least
    ``‖b - A x‖``, ``converged`` False and a ``reason`` that starts with ``"least squares: "``. The tolerance
    is on ``‖b - A x‖`` as in :func:`sparse_core.linalg.cg` (scipy's minres compares with ``‖A‖ ‖x‖``).
    Everything else is as there.

    Args:
        matrix: (M, M) sparse matrix, torch tensor, or a function that returns ``A x`` for ``x`` like ``b``.
        b: (M,) or (M, N) float32, float64, complex64 or complex128.
        x0: start, same shape as ``b``; None is zero.
        options: see :class:`GraphOptions`; the preconditioner is a Hermitian positive definite approximation
            of ``|A|^-1``. (scipy's default of ``max_iterations`` is ``5 M``.)

    Returns:
        The result; not converging is told by ``converged`` and ``reason``, not by an exception.

    Raises:
        TypeError: half precision or integer ``b``.
        ValueError: shapes or devices that do not fit, negative tolerances.
    """
    problem = prepare(matrix, b, x0, **options)
    return run(MinimalResidual(problem))
