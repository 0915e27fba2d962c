"""LSQR: least squares with rectangular matrices, and general systems without a symmetric product.

Paige and Saunders, "LSQR: an algorithm for sparse linear equations and sparse least squares", 1982: Golub
and Kahan's bidiagonalisation, solved by Givens rotations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sparse_core.formats.base import SparseMatrix
from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.krylov.problem import (
    Callback,
    Operand,
    Product,
    check_numbers,
    safe_norms,
    working_dtype,
)
from sparse_core.linalg.krylov.progress import WORTHWHILE
from sparse_core.linalg.krylov.result import SolveResult
from sparse_core.linalg.krylov.scaling import (
    Scaling,
    choose_scaling,
    magnitude_of,
    scaled_number,
    scaled_operand,
    scaled_product,
)
from sparse_core.linalg.krylov.verdict import out_of_range, stagnation, worst
from sparse_core.linalg.preconditioner import check_right_side
from sparse_core.linalg.products import spmm

#: Reasons of a successful solve.
SOLVED, LEAST_SQUARES = "converged", "converged: least squares"


@dataclass(frozen=True)
class _Rules:
    """Stopping rules, with scipy's names."""

    atol: float
    btol: float
    conlim: float
    max_iterations: int
    callback: Callback | None

    def verdict(self, residual: float, slope: float, norm: float, x: float, b: float) -> str:
        """Return the reason to stop, or "", from norms of ``r = b - A x``, ``A^H r``, A, ``x``, ``b``."""
        if residual <= self.btol * b + self.atol * norm * x:
            return SOLVED
        return LEAST_SQUARES if slope <= self.atol * norm * residual else ""


@dataclass
class _LeastSquaresSolve:
    """Solve of one right-hand side without damping.

    Attributes:
        apply, adjoint: products with A and ``A^H``.
        b: (M,).
        x: (K,) the current solution.
        norm: estimate of the Frobenius norm of A.
    """

    apply: Product
    adjoint: Product
    b: Tensor
    x: Tensor
    rules: _Rules
    norm: float = 0.0
    history: list[float] = field(default_factory=list)

    @property
    def iterations(self) -> int:
        return len(self.history) - 1

    def run(self) -> SolveResult:
        """Bidiagonalise from the residual, and again from the true one if rounding changed it."""
        b_norm = _norm(self.b)
        residual, slope, start = self._true_residual()
        self.history.append(residual)
        if b_norm == 0:
            # For b = 0 the tolerance is relative to A x0.
            b_norm = residual
        reason = "" if math.isfinite(residual) and math.isfinite(slope) else self._not_finite(b_norm)
        if not reason and (slope == 0 or residual <= self.rules.btol * b_norm):
            reason = SOLVED if residual <= self.rules.btol * b_norm else LEAST_SQUARES
        while not reason:
            before = (residual, slope)
            reason = self._bidiagonalise(start, residual, b_norm)
            residual, slope, start = self._true_residual()
            if reason in (SOLVED, LEAST_SQUARES):
                held = self.rules.verdict(residual, slope, self.norm, _norm(self.x), b_norm)
                hopeless = residual > WORTHWHILE * before[0] and slope > WORTHWHILE * before[1]
                reason = held or (stagnation(residual, self.b.dtype) if hopeless else "")
        return SolveResult(
            x=self.x,
            converged=reason in (SOLVED, LEAST_SQUARES),
            iterations=self.iterations,
            residuals=tuple(self.history),
            tolerance=self.rules.btol * b_norm + self.rules.atol * self.norm * _norm(self.x),
            reason=reason,
            true_residual=residual,
            method="lsqr",
        )

    def _true_residual(self) -> tuple[float, float, Tensor]:
        """Compute ``‖r‖``, ``‖A^H r‖`` and ``r = b - A x`` from ``x``."""
        residual = self.b - self.apply(self.x)
        return _norm(residual), _norm(self.adjoint(residual)), residual

    def _bidiagonalise(self, start: Tensor, start_norm: float, b_norm: float) -> str:
        """Iterate from the residual ``start`` until a stopping rule holds; return its reason."""
        rules, origin = self.rules, self.x
        u = start / start_norm
        v = self.adjoint(u)
        alpha = _norm(v)
        v = v / alpha
        w, step = v, torch.zeros_like(v)
        rho_bar, phi_bar, square, inverse = alpha, start_norm, alpha**2, 0.0
        while self.iterations < rules.max_iterations:
            u = self.apply(v) - alpha * u
            beta = _norm(u)
            u = u / beta if beta > 0 else u
            square += beta**2
            following = self.adjoint(u) - beta * v
            alpha = _norm(following)
            v = following / alpha if alpha > 0 else following
            square += alpha**2
            rho = math.hypot(rho_bar, beta)
            if not (rho > 0 and math.isfinite(rho) and math.isfinite(alpha)):
                return LEAST_SQUARES if rho == 0 else self._not_finite(b_norm)
            cosine, sine = rho_bar / rho, beta / rho
            phi, phi_bar = cosine * phi_bar, sine * phi_bar
            fresh = step + (phi / rho) * w
            size = _norm(origin + fresh)
            if not math.isfinite(size):
                return self._not_finite(b_norm)
            step, self.x = fresh, origin + fresh
            inverse += (_norm(w) / rho) ** 2
            w = v - (sine * alpha / rho) * w
            rho_bar = -cosine * alpha
            self.norm = max(self.norm, math.sqrt(square))
            residual, slope = phi_bar, alpha * abs(sine * phi)
            self.history.append(residual)
            reason = self.rules.verdict(residual, slope, self.norm, size, b_norm)
            if not reason and rules.conlim and self.norm * math.sqrt(inverse) >= rules.conlim:
                reason = f"breakdown: the condition number of A exceeds conlim = {rules.conlim:.3g}"
            if rules.callback is not None and rules.callback(self.iterations, self.x, residual) is True:
                reason = reason or "stopped by callback"
            if reason:
                return reason
        return "max_iterations"

    def _not_finite(self, b_norm: float) -> str:
        if not math.isfinite(b_norm):
            return "breakdown: b is not finite, or its norm overflows"
        if not bool(torch.isfinite(self.x).all()):
            self.x = torch.zeros_like(self.x)
        return f"breakdown: a value is not finite at iteration {self.iterations + 1}"


@torch.no_grad()
@without_autocast
def lsqr(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    *,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    max_iterations: int | None = None,
    adjoint: Product | None = None,
    columns: int | None = None,
    callback: Callback | None = None,
) -> SolveResult:
    """Minimise ``‖b - A x‖^2 + damp^2 ‖x - x0‖^2`` by LSQR; A may have any shape and rank.

    As in scipy, the solve ends if ``‖r‖ <= btol ‖b‖ + atol ‖A‖ ‖x‖`` (``"converged"``) or
    ``‖A^H r‖ <= atol ‖A‖ ‖r‖`` (``"converged: least squares"``), with an estimate of the Frobenius norm of A.
    Both are verified with norms computed from ``x``; if these differ, the solve continues. From
    ``x0 = None`` the result is the solution of least norm. The host reads a few norms in every iteration. No
    gradient flows.

    Args:
        matrix: (M, K) sparse matrix or torch tensor, or a function that returns ``A x``.
        b: (M,) or (M, N) float32, float64, complex64 or complex128; columns are solved one by one.
        x0: (K,) or (K, N) start; None is zero.
        damp: damping; for an ill-posed A.
        atol: relative error of A.
        btol: relative error of ``b``.
        conlim: end if the estimated condition number of A exceeds this; 0 is never.
        max_iterations: None is ``2 K``, as in scipy.
        adjoint: for a function ``matrix``: the function that returns ``A^H y``.
        columns: for a function ``matrix``: K; None is M.
        callback: called as ``callback(iteration, x, residual norm)``; True ends the solve.

    Returns:
        The result, with ``x`` (K,) or (K, N); ``residuals`` include the damping, ``true_residual`` does not.
        Without convergence, ``converged`` is False and ``reason`` explains it.

    Raises:
        TypeError: half precision or integer ``b``; a function without ``adjoint``.
        ValueError: shapes or devices that do not match, negative tolerances.
    """
    check_numbers(b, max_iterations, damp=damp, atol=atol, btol=btol, conlim=conlim)
    apply, apply_adjoint, width = _products(matrix, b, adjoint, columns)
    right, start = _sides(matrix, b, x0, width)
    limit = 2 * width if max_iterations is None else max_iterations
    rules = _Rules(atol, btol, conlim, limit, callback)

    def alone(side: Tensor, begin: Tensor) -> SolveResult:
        scaling = choose_scaling(
            lambda usual: _magnitude(matrix, apply_adjoint, usual),
            side,
            begin if x0 is not None else None,
            floor=damp,
        )
        products = _scaled_products(matrix, apply, apply_adjoint, scaling.matrix)
        side, begin = scaling.right_side(side), scaling.start(begin)
        own = replace(rules, callback=_rescaled(callback, scaling))
        if damp:
            return _restore(
                _solve_damped(*products, side, begin, own, scaled_number(damp, -scaling.matrix)), scaling
            )
        return _restore(_LeastSquaresSolve(*products, side, begin.clone(), own).run(), scaling)

    if right.ndim == 1:
        return alone(right, start)
    results = [alone(right[:, at], start[:, at]) for at in range(right.shape[1])]
    x = torch.stack([result.x for result in results], dim=1) if results else start
    return worst(results, x, "lsqr", "plain")


def _rescaled(callback: Callback | None, scaling: Scaling) -> Callback | None:
    if callback is None or scaling.identity:
        return callback
    return lambda iteration, y, norm: callback(iteration, scaling.solution(y), scaling.norm(norm))


def _restore(result: SolveResult, scaling: Scaling) -> SolveResult:
    """Return the result for the original system."""
    if scaling.identity:
        return result
    y, x = result.x, scaling.solution(result.x)
    overflowed = _norm(scaling.start(x) - y) > torch.finfo(x.dtype).eps * _norm(y)
    if not bool(torch.isfinite(x).all()):
        x, overflowed = torch.zeros_like(x), True
    wrong = result.converged and overflowed
    return replace(
        result,
        x=x,
        converged=result.converged and not overflowed,
        residuals=tuple(map(scaling.norm, result.residuals)),
        tolerance=scaling.norm(result.tolerance),
        reason=out_of_range(x.dtype) if wrong else result.reason,
        true_residual=scaling.norm(result.true_residual),
    )


def _solve_damped(
    apply: Product, adjoint: Product, b: Tensor, x0: Tensor, rules: _Rules, damp: float
) -> SolveResult:
    """Solve for ``[A; damp I]`` and ``[b - A x0; 0]``, whose solution is ``x - x0``."""
    rows = len(b)
    solve = _LeastSquaresSolve(
        lambda x: torch.cat([apply(x), damp * x]),
        lambda y: adjoint(y[:rows]) + damp * y[rows:],
        torch.cat([b - apply(x0), torch.zeros_like(x0)]),
        torch.zeros_like(x0),
        rules,
    )
    result = solve.run()
    x = x0 + result.x
    return replace(result, x=x, true_residual=_norm(b - apply(x)))


def _products(
    matrix: Operand, b: Tensor, adjoint: Product | None, columns: int | None
) -> tuple[Product, Product, int]:
    """Return products with A and ``A^H``, and the number of columns of A."""
    if isinstance(matrix, SparseMatrix | Tensor):
        if isinstance(matrix, Tensor) and matrix.ndim != 2:
            raise ValueError(f"matrix must have two dimensions, got shape {tuple(matrix.shape)}")
        check_right_side(b, (matrix.shape[0], matrix.shape[1]))
        if matrix.device != b.device:
            raise ValueError(f"matrix is on {matrix.device}, b on {b.device}: move one of them")
        return *_stored_products(matrix.detach()), matrix.shape[1]
    if not callable(matrix):
        raise TypeError(
            f"matrix must be a SparseMatrix, a torch tensor or a function, got {type(matrix).__name__}"
        )
    if b.ndim not in (1, 2):
        raise ValueError(f"b must have shape (M,) or (M, N), got {tuple(b.shape)}")
    if adjoint is None:
        raise TypeError("matrix is a function: pass adjoint, the function that returns A^H y")
    return matrix, adjoint, len(b) if columns is None else columns


def _stored_products(held: SparseMatrix | Tensor) -> tuple[Product, Product]:
    if isinstance(held, Tensor):
        return (lambda x: held.to(x.dtype) @ x), (lambda y: held.mH.to(y.dtype) @ y)

    def adjoint_product(y: Tensor) -> Tensor:
        return spmm(held, y.conj().resolve_conj(), transpose=True).conj().resolve_conj()

    return held.__matmul__, adjoint_product


def _magnitude(matrix: Operand, adjoint: Product, right: Tensor) -> float:
    """Estimate the largest number of A; for a function, from its adjoint of a right-hand side."""
    if isinstance(matrix, SparseMatrix | Tensor):
        return magnitude_of(matrix)
    return float(adjoint(right).abs().max()) if right.numel() else 0.0


def _scaled_products(
    matrix: Operand, apply: Product, adjoint: Product, exponent: int
) -> tuple[Product, Product]:
    """Return products with A and ``A^H``, divided by ``2^exponent``."""
    if exponent == 0:
        return apply, adjoint
    scaled = scaled_operand(matrix, exponent)
    if scaled is not None:
        return _stored_products(scaled)
    return scaled_product(matrix, apply, exponent), scaled_product(matrix, adjoint, exponent)


def _sides(matrix: Operand, b: Tensor, x0: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
    """Return right-hand side and start in the working dtype."""
    dtype = working_dtype(matrix, b, x0)
    shape = (width, *b.shape[1:])
    if x0 is not None and (tuple(x0.shape) != shape or x0.device != b.device):
        raise ValueError(f"x0 must be {shape} on {b.device}; got {tuple(x0.shape)} on {x0.device}")
    right = b.detach().to(dtype)
    start = right.new_zeros(shape) if x0 is None else x0.detach().to(dtype)
    return right, start


def _norm(vector: Tensor) -> float:
    return float(safe_norms(vector))
