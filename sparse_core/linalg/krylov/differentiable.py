"""Differentiable solve: the gradient solves the adjoint system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.formats.base import SparseMatrix
from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.krylov.bicgstab import bicgstab
from sparse_core.linalg.krylov.cg import cg
from sparse_core.linalg.krylov.gmres import gmres
from sparse_core.linalg.krylov.minres import minres
from sparse_core.linalg.krylov.problem import Operand, stored
from sparse_core.linalg.krylov.result import SolveResult
from sparse_core.linalg.operands import as_gradient, gradient_needed
from sparse_core.linalg.products import sddmm
from sparse_core.linalg.structure import as_csr, transposed

Method = Literal["cg", "bicgstab", "gmres", "minres"]
#: Methods for which A is its own adjoint.
_HERMITIAN = ("cg", "minres")
_SOLVERS: dict[str, Callable[..., SolveResult]] = {
    "cg": cg,
    "bicgstab": bicgstab,
    "gmres": gmres,
    "minres": minres,
}


class _System(NamedTuple):
    """Settings that the backward pass needs besides tensors."""

    matrix: Operand
    method: Method
    preconditioner: Operand | None
    adjoint_preconditioner: Operand | None
    options: dict[str, Any]

    def solve(self, b: Tensor) -> Tensor:
        result = _SOLVERS[self.method](self.matrix, b, preconditioner=self.preconditioner, **self.options)
        return result.raise_if_failed().x

    def adjoint(self) -> _System:
        """Return the system of the gradient; a Hermitian A is its own adjoint."""
        hermitian = self.method in _HERMITIAN
        preconditioner = self.adjoint_preconditioner
        if preconditioner is None and hermitian:
            preconditioner = self.preconditioner
        return self._replace(
            matrix=self.matrix if hermitian else _adjoint(self.matrix),
            preconditioner=preconditioner,
            adjoint_preconditioner=self.preconditioner,
        )


def _adjoint(matrix: Operand) -> Operand:
    if isinstance(matrix, Tensor):
        return matrix.mH
    if isinstance(matrix, SparseMatrix):
        transpose = transposed(matrix)
        adjoint: SparseMatrix = transpose.with_values(transpose.values.conj().resolve_conj())
        return adjoint
    raise TypeError(
        "the gradient needs the adjoint of a function: pass a matrix, or use method='cg' or 'minres'"
    )


class _DifferentiableSolve(torch.autograd.Function):
    """``x = A^-1 b``; with ``g = A^-H dL/dx``: ``dL/db = g``, ``dL/dA[i, j] = -g[i] conj(x[j])``."""

    @staticmethod
    def forward(values: Tensor | None, b: Tensor, pattern: CSR | None, system: _System) -> Tensor:
        return system.solve(b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, b, ctx.pattern, ctx.system = inputs
        ctx.save_for_backward(values, output)
        ctx.save_for_forward(values, output)
        ctx.b_dtype = b.dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, x = ctx.saved_tensors
        adjoint_values, adjoint_pattern = None, None
        if values is not None and torch.is_grad_enabled():
            adjoint_values, adjoint_pattern = _adjoint_values(values, ctx.pattern)
        adjoint: Tensor = _DifferentiableSolve.apply(
            adjoint_values, gradient.contiguous(), adjoint_pattern, ctx.system.adjoint()
        )
        of_values = None
        if ctx.needs_input_grad[0]:
            left, right = -adjoint.reshape(len(x), -1), x.conj().reshape(len(x), -1).mT
            of_values = as_gradient(_sample(ctx.pattern, left, right), values.dtype)
        of_b = as_gradient(adjoint, ctx.b_dtype) if ctx.needs_input_grad[1] else None
        return of_values, of_b, None, None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor | None, of_b: Tensor | None, *_: None) -> Tensor:
        values, x = ctx.saved_tensors
        # A dx = db - dA x
        right = torch.zeros_like(x) if of_b is None else of_b.to(x.dtype)
        if of_values is not None:
            change = of_values if ctx.pattern is None else ctx.pattern.with_values(of_values)
            right = right - change.to(x.dtype) @ x
        found: Tensor = _DifferentiableSolve.apply(values, right, ctx.pattern, ctx.system)
        return found


def _adjoint_values(values: Tensor, pattern: CSR | None) -> tuple[Tensor, CSR | None]:
    """Return the values of the adjoint matrix, differentiable in those of the matrix, and their pattern."""
    if pattern is None:
        return values.mH, None
    adjoint = _adjoint(pattern.with_values(values))
    assert isinstance(adjoint, CSR)
    return adjoint.values, adjoint.detach()


@without_autocast
def _sample(pattern: CSR | None, left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right`` at the entries of the matrix."""
    if pattern is None:
        product: Tensor = left @ right
        return product
    values: Tensor = sddmm(pattern, left, right.resolve_conj()).values
    return values


def solve(
    matrix: Operand,
    b: Tensor,
    *,
    method: Method = "cg",
    rtol: float = 1e-5,
    atol: float = 0.0,
    preconditioner: Operand | None = None,
    adjoint_preconditioner: Operand | None = None,
    **options: Any,
) -> Tensor:
    """Solve ``A x = b`` with gradients for the stored values of A and for ``b``.

    The gradient is that of the exact solution. It takes one solve with the adjoint matrix to the same
    relative tolerance; memory does not grow with the iterations. Each stored value is a parameter of its own:
    for a symmetric A filled from one parameter, autograd adds both halves.

    Args:
        matrix: (M, M) sparse matrix of any format, torch tensor, or a function. A function has no gradient
            for A, and one for ``b`` only with ``method="cg"`` or ``"minres"``.
        b: (M,) or (M, N).
        method: ``"cg"`` (Hermitian positive definite A), ``"minres"`` (Hermitian A), ``"bicgstab"`` or
            ``"gmres"``.
        rtol: tolerance relative to ``‖b‖``, also of the adjoint solve.
        atol: absolute tolerance; the adjoint solve uses it relative to ``‖b‖``.
        preconditioner: approximation of ``A^-1``; constant, without gradient.
        adjoint_preconditioner: approximation of ``A^-H``; None is ``preconditioner`` for cg and minres, else
            none.
        options: further options of :func:`cg`, :func:`minres`, :func:`bicgstab` or :func:`gmres`.

    Returns:
        The solution, same shape as ``b``, in the working dtype.

    Raises:
        ConvergenceError: the solve, or in the backward pass its adjoint, missed the tolerance.
        TypeError: as the solvers; a gradient for a function with another method than cg or minres.
        ValueError: as the solvers; an unknown method.
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}; got {method!r}")
    for name in ("x0", "callback"):
        if name in options:
            raise TypeError(f"solve has no option {name}: call {method} instead")
    matrix = stored(matrix)
    values, pattern = _values(matrix)
    detached = matrix.detach() if isinstance(matrix, SparseMatrix | Tensor) else matrix
    rtol = max(rtol, _relative(atol, b))
    system = _System(detached, method, preconditioner, adjoint_preconditioner, {"rtol": rtol, **options})
    solution: Tensor = _DifferentiableSolve.apply(values, b, pattern, system)
    return solution


def _values(matrix: Operand) -> tuple[Tensor | None, CSR | None]:
    """Return the differentiable values, and their pattern (None for a dense matrix)."""
    if isinstance(matrix, Tensor):
        return matrix, None
    if not isinstance(matrix, SparseMatrix) or not gradient_needed(matrix):
        return None, None

    csr = as_csr(matrix)
    return csr.values, csr.detach()


def _relative(atol: float, b: Tensor) -> float:
    """Return ``atol`` relative to the right-hand side, so that it fits the adjoint system too."""
    if not atol:
        return 0.0
    norm = float(torch.linalg.vector_norm(b.detach(), dim=0).min()) if b.numel() else 0.0
    return atol / norm if norm else 0.0
