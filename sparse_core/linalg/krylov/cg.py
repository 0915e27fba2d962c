"""Conjugate gradients for Hermitian positive definite systems."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.dispatch import Impl, check_impl, module_available, require_module
from sparse_core.errors import ImplementationError
from sparse_core.linalg.krylov.conjugate_gradient import ConjugateGradient
from sparse_core.linalg.krylov.loop import run
from sparse_core.linalg.krylov.problem import GraphOptions, LinearSystem, Operand, prepare
from sparse_core.linalg.krylov.result import SolveResult


@without_autocast
def cg(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    *,
    impl: Impl = "auto",
    **options: Unpack[GraphOptions],
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
        impl: ``"reference"`` is plain torch, ``"triton"`` fuses the vector updates (one right-hand side,
            float32 or float64, CUDA or Triton's interpreter); ``"auto"`` fuses where it can.
        options: see :class:`GraphOptions`; the preconditioner is Hermitian positive definite.

    Returns:
        The result; not converging is told by ``converged`` and ``reason``, not by an exception.

    Raises:
        TypeError: half precision or integer ``b``.
        ValueError: shapes or devices that do not fit, negative tolerances.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    check_impl(impl)
    problem = prepare(matrix, b, x0, **options)
    if _resolve(impl, problem) == "triton":
        from sparse_core.linalg.krylov.triton import FusedConjugateGradient

        return run(FusedConjugateGradient(problem))
    return run(ConjugateGradient(problem))


def _resolve(impl: Impl, problem: LinearSystem) -> str:
    fits = problem.b.ndim == 1 and not problem.b.is_complex() and problem.b.numel() > 0
    if impl == "vendor":
        raise ImplementationError("cg has no vendor implementation")
    if impl == "triton":
        require_module("triton", impl=impl, hint="pip install triton")
        from sparse_core.linalg.krylov.triton import check_runnable

        check_runnable(problem.b)
        if not fits:
            raise ImplementationError(
                "impl='triton' fuses updates of one real right-hand side that is not empty;"
                f" got {tuple(problem.b.shape)} {problem.b.dtype}"
            )
        return "triton"
    if impl == "auto" and problem.b.is_cuda and fits and module_available("triton"):
        return "triton"
    return "reference"
