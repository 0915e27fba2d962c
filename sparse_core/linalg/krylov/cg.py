"""Conjugate gradients for Hermitian positive definite systems.

Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952; with
preconditioning as in Saad, "Iterative methods for sparse linear systems", 2003, algorithm 9.1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.linalg.krylov.loop import run
from sparse_core.linalg.krylov.problem import (
    Callback,
    Operand,
    Problem,
    column_dots,
    column_norms,
    prepare,
    safe_norms,
)
from sparse_core.linalg.krylov.progress import Progress, Status, add_scaled
from sparse_core.linalg.krylov.result import SolveResult
from sparse_core.op import Impl, Op, by_torch, by_triton


def _fuses(kind: str, shape: torch.Size, dtype: torch.dtype) -> str | None:
    if len(shape) == 1 and shape[0] > 0 and not dtype.is_complex:
        return None
    return f"fuses updates of one real right-hand side that is not empty; got {tuple(shape)} {dtype}"


#: By the right-hand sides.
CG: Op[torch.Size, torch.dtype] = Op(
    "cg",
    __package__,
    by_triton(needs="one real right-hand side", supports=_fuses),
    by_torch(module=__name__),
    gradient=False,
)


class ConjugateGradient:
    """State and step of the recurrence in plain torch; every column has its own coefficients."""

    method = "cg"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.progress = Progress(problem.tolerance, problem.check_every, problem.max_iterations)
        self.x = problem.x
        self.residual = problem.b.clone(memory_format=torch.contiguous_format)
        self.direction = torch.empty_like(self.residual)
        self.rho = torch.empty_like(problem.tolerance)

    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """Start, or restart ``columns`` (bool), from ``residual`` = ``b - A x``."""
        self.residual.copy_(residual)
        self.progress.begin(safe_norms(residual), columns)
        correction = self._precondition()
        self.direction.copy_(correction)
        self.rho.copy_(column_dots(self.residual, correction).real)

    def step(self, slot: int) -> None:
        """One iteration, in place and without the host."""
        product = self.problem.apply(self.direction)
        curvature = column_dots(self.direction, product).real
        failure = _failure(self.rho, curvature)
        allowed = self.progress.running & (failure == 0)
        alpha = self.rho / curvature
        add_scaled(self.x, alpha, self.direction, allowed)
        add_scaled(self.residual, -alpha, product, allowed)
        self.progress.record(slot, column_norms(self.residual), failure, curvature)
        correction = self._precondition()
        rho = column_dots(self.residual, correction).real
        beta = (rho / self.rho).to(self.direction.dtype)
        torch.addcmul(correction, self.direction, beta, out=self.direction)
        self.rho.copy_(rho)

    def _precondition(self) -> Tensor:
        precondition = self.problem.precondition
        return self.residual if precondition is None else precondition(self.residual)


def _failure(rho: Tensor, curvature: Tensor) -> Tensor:
    """Why a step cannot be taken: ``Status`` of each column, 0 where it can."""
    failure = torch.where(curvature > 0, 0, int(Status.NOT_POSITIVE_DEFINITE))
    failure = torch.where(rho > 0, failure, int(Status.PRECONDITIONER_NOT_POSITIVE_DEFINITE))
    finite = torch.isfinite(rho) & torch.isfinite(curvature)
    return torch.where(finite, failure, int(Status.NOT_FINITE))


@without_autocast
def cg(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    max_iterations: int | None = None,
    preconditioner: Operand | None = None,
    callback: Callback | None = None,
    check_every: int | None = None,
    use_graph: bool | None = None,
    impl: Impl = "auto",
) -> SolveResult:
    """Solve ``A x = b`` for a Hermitian positive definite A by conjugate gradients.

    The tolerance means what it means in scipy: the loop ends once the recurrence's residual satisfies
    ``‖b - A x‖ <= max(rtol * ‖b‖, atol)``. The residual is then computed afresh from ``x``. Where rounding
    has left it above the tolerance the recurrence restarts from it (scipy would stop here), and when a
    restart brings next to nothing the result says "stagnation": in float32 that is common below an ``rtol``
    of 1e-7 times the condition number.

    On CUDA nothing is read back while iterations run, except the residual every ``check_every``
    iterations; ``x``, ``iterations`` and ``residuals`` do not depend on that number, because a column that
    has met its tolerance is frozen on the device. No gradient flows; see :func:`sparse_core.linalg.solve`.
    Autocast is off inside, also for ``matrix`` and ``preconditioner`` that are functions.

    Args:
        matrix: (M, M) sparse matrix, torch tensor, or a function that returns ``A x`` for ``x`` like ``b``.
        b: (M,) or (M, N) float32, float64, complex64 or complex128; each of N columns has coefficients and
            a tolerance of its own. A matrix in half precision is fine, ``b`` in half precision is not.
        x0: start, same shape as ``b``; None is zero.
        rtol: tolerance relative to ``‖b‖``.
        atol: absolute tolerance.
        max_iterations: None is ``10 M``, as in scipy.
        preconditioner: Hermitian positive definite approximation of ``A^-1``: a ``Preconditioner``, a
            function ``r -> z``, or a matrix.
        callback: called as ``callback(iteration, x, residual norm)`` after every look at the residual; ``x``
            is the solver's own buffer (copy it to keep it), the norm the largest of the columns. Returning
            True ends the solve.
        check_every: iterations between two looks; None is 1 on a CPU or with a callback, else 10.
        use_graph: replay ``check_every`` iterations as one CUDA graph. None: where ``matrix`` is stored and
            the preconditioner declares ``graph_safe = True``, and plainly where the capture fails (the
            result's ``execution`` says so); True: always, and a failure raises.
        impl: ``"reference"`` is plain torch, ``"triton"`` fuses the vector updates (one right-hand side,
            float32 or float64, CUDA or Triton's interpreter); ``"auto"`` fuses where it can.

    Returns:
        The result; not converging is told by ``converged`` and ``reason``, not by an exception.

    Raises:
        TypeError: half precision or integer ``b``.
        ValueError: shapes or devices that do not fit, negative tolerances.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    problem = prepare(
        matrix,
        b,
        x0,
        rtol=rtol,
        atol=atol,
        max_iterations=max_iterations,
        preconditioner=preconditioner,
        callback=callback,
        check_every=check_every,
        use_graph=use_graph,
    )
    if CG.choose(impl, problem.b.device, problem.b.shape, problem.b.dtype) == "triton":
        from sparse_core.linalg.krylov.triton import FusedConjugateGradient

        return run(FusedConjugateGradient(problem))
    return run(ConjugateGradient(problem))
