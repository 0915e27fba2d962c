"""Conjugate gradients for Hermitian positive definite systems."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from sparse_core.kernels.autocast import without_autocast
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton
from sparse_core.linalg.krylov.conjugate_gradient import ConjugateGradient
from sparse_core.linalg.krylov.loop import run
from sparse_core.linalg.krylov.problem import GraphOptions, Operand, prepare
from sparse_core.linalg.krylov.result import SolveResult


def _fuses(kind: str, shape: torch.Size, dtype: torch.dtype) -> str | None:
    if len(shape) == 1 and shape[0] > 0 and not dtype.is_complex:
        return None
    return f"supports one non-empty real right-hand side, got {tuple(shape)} {dtype}: use 'reference'"


#: The case: shape and dtype of the right-hand sides.
CG: Op[torch.Size, torch.dtype] = Op(
    "cg",
    __package__,
    by_triton(needs="one real right-hand side", supports=_fuses),
    by_torch(module=f"{__package__}.conjugate_gradient"),
    gradient=False,
)


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

    As in scipy, the loop ends once the recurrence's residual satisfies ``‖b - A x‖ <= max(rtol * ‖b‖,
    atol)``. The residual is then computed from ``x``. If rounding left it above the tolerance, the recurrence
    restarts from it (scipy would stop here). If restarts no longer help, the reason is "stagnation", which in
    float32 is common for ``rtol`` below 1e-7 times the condition number.

    On CUDA the host reads the residual every ``check_every`` iterations and nothing else. That number does
    not change ``x``, ``iterations`` and ``residuals``, because converged columns are frozen on the device. No
    gradient flows; see :func:`sparse_core.linalg.solve`. Autocast is off inside, also in functions passed as
    ``matrix`` and ``preconditioner``.

    Args:
        matrix: (M, M) sparse matrix, torch tensor, or a function that returns ``A x`` for ``x`` like ``b``.
        b: (M,) or (M, N) float32, float64, complex64 or complex128; each of N columns has its own
            coefficients and tolerance. The solver works in the type that ``matrix``, ``b`` and ``x0`` promote
            to; this may not be half precision.
        x0: start, same shape as ``b``; None is zero.
        impl: ``"reference"`` is plain torch, ``"triton"`` fuses the vector updates (one right-hand side,
            float32 or float64, CUDA or Triton's interpreter); ``"auto"`` fuses where possible.
        options: see :class:`GraphOptions`; the preconditioner must be Hermitian positive definite.

    Returns:
        The result; without convergence, ``converged`` is False and ``reason`` explains it.

    Raises:
        TypeError: all arguments are half precision or integers, or an unknown option.
        ValueError: shapes or devices that do not match, negative tolerances.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    problem = prepare(matrix, b, x0, **options)
    if CG.choose(impl, problem.b.device, problem.b.shape, problem.b.dtype) == "triton":
        from sparse_core.linalg.krylov.triton import FusedConjugateGradient

        return run(FusedConjugateGradient(problem))
    return run(ConjugateGradient(problem))
