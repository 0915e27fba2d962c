"""Restarted GMRES for general systems.

Saad and Schultz, "GMRES: a generalized minimal residual algorithm for solving nonsymmetric linear
systems", 1986. Preconditioned from the right (Saad, "Iterative methods for sparse linear systems", 2003,
algorithm 9.5), so that it minimises the residual of ``A x = b``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Unpack

from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.krylov.problem import (
    LinearSystem,
    Operand,
    Product,
    SolveOptions,
    is_bare_function,
    prepare,
    safe_norms,
    stored,
)
from sparse_core.linalg.krylov.progress import WORTHWHILE, Snapshot, Status
from sparse_core.linalg.krylov.result import SolveResult
from sparse_core.linalg.krylov.verdict import reason_of, stagnation, worst


class Arnoldi:
    """Orthonormal basis of the Krylov space, built on the device.

    Classical Gram-Schmidt, done twice, is as orthogonal as the modified one and needs two matrix products
    (Giraud et al., "The loss of orthogonality in the Gram-Schmidt orthogonalization process", 2005).
    """

    def __init__(self, problem: LinearSystem, size: int) -> None:
        self.problem = problem
        self.basis = problem.b.new_zeros(size + 1, len(problem.b))
        self.columns = problem.b.new_zeros(size, size + 1)

    def begin(self, residual: Tensor, norm: float) -> None:
        """Set the first basis vector."""
        torch.div(residual, norm, out=self.basis[0])

    def extend(self, step: int) -> None:
        """Add basis vector ``step + 1`` and column ``step`` of the Hessenberg matrix, without the host."""
        vector = self.basis[step]
        image = self.problem.apply(self.problem.correction(vector))
        basis = self.basis[: step + 1]
        before = torch.linalg.vector_norm(image)
        overlap = basis.conj() @ image
        image = image - overlap @ basis
        correction = basis.conj() @ image
        image = image - correction @ basis
        after = torch.linalg.vector_norm(image)
        # In an exhausted space only rounding errors remain; mark it with zeros. NaN stays NaN.
        exhausted = after <= torch.finfo(image.dtype).eps * before
        after = torch.where(exhausted, torch.zeros_like(after), after)
        self.basis[step + 1] = torch.where(exhausted, torch.zeros_like(image), image / after)
        self.columns[step, : step + 1] = overlap + correction
        self.columns[step, step + 1] = after

    def combine(self, weights: NDArray) -> Tensor:
        """Return the correction of ``x``: the preconditioned combination of basis vectors."""
        return self.problem.correction(torch.from_numpy(weights).to(self.basis) @ self.basis[: len(weights)])


class LeastSquares:
    """Small problem ``min ‖norm e1 - H y‖`` by Givens rotations, on the host in double precision."""

    def __init__(self, norm: float, size: int) -> None:
        self.triangle: NDArray = np.zeros((size, size), dtype=np.complex128)
        self.right: NDArray = np.zeros(size + 1, dtype=np.complex128)
        self.right[0] = norm
        self.rotations: list[tuple[float, complex]] = []

    def append(self, column: NDArray) -> float:
        """Add a Hessenberg column (k + 2 entries) and return the new residual norm."""
        column = column.astype(np.complex128)
        for at, (cosine, sine) in enumerate(self.rotations):
            upper, lower = column[at], column[at + 1]
            column[at] = cosine * upper + sine * lower
            column[at + 1] = -np.conj(sine) * upper + cosine * lower
        at = len(self.rotations)
        cosine, sine, diagonal = _rotation(complex(column[at]), complex(column[at + 1]))
        self.rotations.append((cosine, sine))
        self.triangle[: at + 1, at] = [*column[:at], diagonal]
        self.right[at + 1] = -np.conj(sine) * self.right[at]
        self.right[at] *= cosine
        # If the matrix is singular on the space, nothing reduces this component.
        return float(abs(self.right[at if diagonal == 0 else at + 1]))

    def solve(self, size: int) -> NDArray:
        """Return the weights ``y`` of ``size`` directions; singular directions get zero."""
        weights = self.right[:size].copy()
        for at in range(size - 1, -1, -1):
            diagonal = self.triangle[at, at]
            weights[at] = 0 if diagonal == 0 else weights[at] / diagonal
            weights[:at] -= weights[at] * self.triangle[:at, at]
        return weights


def _rotation(upper: complex, lower: complex) -> tuple[float, complex, complex]:
    """Return cosine (real), sine and diagonal of the rotation that clears ``lower``."""
    length = float(np.hypot(abs(upper), abs(lower)))
    if length == 0:
        return 1.0, 0j, 0j
    if upper == 0:
        return 0.0, complex(np.conj(lower)) / length, complex(length)
    phase = upper / abs(upper)
    return abs(upper) / length, phase * complex(np.conj(lower)) / length, phase * length


class _ArnoldiSolve:
    """One call of :func:`gmres`: cycles of Arnoldi steps, with a new residual between them."""

    def __init__(self, problem: LinearSystem, restart: int) -> None:
        self.problem = problem
        self.size = max(1, min(restart, len(problem.b)))
        self.x = problem.x
        self.tolerance = float(problem.tolerance)
        self.arnoldi = Arnoldi(problem, self.size)
        self.squares = LeastSquares(0.0, self.size)
        self.history: list[float] = []

    @property
    def iterations(self) -> int:
        return len(self.history) - 1

    def run(self) -> SolveResult:
        problem = self.problem
        residual = problem.b if problem.starts_at_zero else problem.residual(self.x)
        norm = float(safe_norms(residual))
        self.history.append(norm)
        reason = self._judge(norm)
        while not reason:
            start = self.x.clone()
            predicted, exhausted = self._cycle(residual, norm)
            if np.isfinite(predicted):
                residual = problem.residual(self.x)
                before, norm = norm, float(safe_norms(residual))
                if not norm <= before:
                    residual, norm = self._retreat(start, before)
                solved = predicted <= self.tolerance
                reason = self._judge(norm) or self._progress(before, norm, solved, exhausted)
            else:
                reason = self._explain(Status.NOT_FINITE)
            if self._stopped(norm):
                reason = reason or "stopped by callback"
        if not bool(torch.isfinite(self.x).all()):
            # This happens only for a non-finite start.
            self.x = torch.zeros_like(self.x)
            norm = float(safe_norms(problem.b))
        scaled = problem.scaling.norm
        if not problem.scaling.identity:
            self.x, norms, overflowed = problem.restore(self.x)
            norm = float(norms)
            if reason == "converged" and (bool(overflowed) or not norm <= self.tolerance):
                reason = self._explain(Status.OUT_OF_RANGE)
        return SolveResult(
            x=self.x,
            converged=reason == "converged",
            iterations=self.iterations,
            residuals=tuple(map(scaled, self.history)),
            tolerance=scaled(self.tolerance),
            reason=reason,
            true_residual=scaled(norm),
            method="gmres",
        )

    def _stopped(self, norm: float) -> bool:
        callback, scaling = self.problem.callback, self.problem.scaling
        if callback is None:
            return False
        return callback(self.iterations, scaling.solution(self.x), scaling.norm(norm)) is True

    def _cycle(self, residual: Tensor, norm: float) -> tuple[float, bool]:
        """Run up to ``restart`` iterations; return the predicted norm, and True for an exhausted space."""
        squares = LeastSquares(norm, self.size)
        self.arnoldi.begin(residual, norm)
        limit = min(self.size, self.problem.max_iterations - self.iterations)
        predicted, exhausted, steps = norm, False, 0
        while steps < limit and predicted > self.tolerance and not exhausted:
            fresh = range(steps, min(steps + self.problem.check_every, limit))
            for step in fresh:
                self.arnoldi.extend(step)
            columns = self.arnoldi.columns[fresh.start : fresh.stop].cpu().numpy()
            for step, column in zip(fresh, columns, strict=True):
                if not np.isfinite(column[: step + 2]).all():
                    return float("nan"), False
                predicted = squares.append(column[: step + 2])
                self.history.append(predicted)
                steps, exhausted = step + 1, bool(column[step + 1] == 0)
                if predicted <= self.tolerance or exhausted:
                    break
        self.squares = squares
        self.x += self._correction(steps)
        return predicted, exhausted

    def _correction(self, directions: int) -> Tensor:
        """Return the correction of ``x`` from the first ``directions`` of the basis."""
        weights = self.squares.solve(directions)
        return self.arnoldi.combine(weights if self.x.is_complex() else weights.real)

    def _retreat(self, start: Tensor, before: float) -> tuple[Tensor, float]:
        """Drop the last direction, or the whole cycle, after it increased the residual by rounding.

        Returns the residual of the remaining ``x``, and its norm.
        """
        directions = len(self.squares.rotations) - 1
        if directions > 0:
            self.x = start + self._correction(directions)
            residual = self.problem.residual(self.x)
            norm = float(safe_norms(residual))
            if norm <= before:
                return residual, norm
        self.x = start
        return self.problem.residual(start), before

    def _judge(self, norm: float) -> str:
        if not np.isfinite(norm):
            return self._explain(Status.NOT_FINITE)
        if norm <= self.tolerance:
            return "converged"
        return "max_iterations" if self.iterations >= self.problem.max_iterations else ""

    def _progress(self, before: float, norm: float, solved: bool, exhausted: bool) -> str:
        """Return why another cycle would not help; empty if it may."""
        # After solving the small problem only rounding errors remain, which another cycle may repair.
        if exhausted and norm > WORTHWHILE * before:
            return "breakdown: the Krylov space is exhausted before the tolerance (is the matrix singular?)"
        if solved:
            held = self.problem.scaling.norm(norm)
            return stagnation(held, self.x.dtype) if norm > WORTHWHILE * before else ""
        if norm >= before * (1 - 10 * torch.finfo(self.x.dtype).eps):
            return f"stagnation: {self.size} iterations between restarts no longer lower the residual"
        return ""

    def _explain(self, status: Status) -> str:
        reading = Snapshot([int(status)], [self.iterations], [0.0], [])
        return reason_of(status, reading, 0, self.problem, "gmres")


@torch.no_grad()
@without_autocast
def gmres(
    matrix: Operand,
    b: Tensor,
    x0: Tensor | None = None,
    *,
    restart: int = 20,
    **options: Unpack[SolveOptions],
) -> SolveResult:
    """Solve ``A x = b`` for a general square A by restarted GMRES.

    As in scipy, ``converged`` means ``‖b - A x‖ <= max(rtol * ‖b‖, atol)``, computed from ``x``. The
    preconditioner is applied from the right; scipy applies it from the left and first minimises the
    preconditioned residual. Without a preconditioner both take the same steps.

    Args:
        matrix: (M, M) sparse matrix, torch tensor, or a function that returns ``A x`` for ``x`` like ``b``.
        b: (M,) or (M, N) float32, float64, complex64 or complex128; columns are solved one by one.
        x0: start, same shape as ``b``; None is zero.
        restart: iterations between restarts; memory holds ``restart + 1`` vectors.
        options: see :class:`SolveOptions`. ``max_iterations`` counts products with A per column (scipy's
            ``maxiter`` counts restarts). The preconditioner must be the same linear map in every call.
            ``callback`` is called after every restart, for the current column, and can end its solve.

    Returns:
        The result; without convergence, ``converged`` is False and ``reason`` explains it.

    Raises:
        TypeError: half precision or integer ``b``.
        ValueError: shapes or devices that do not match, negative tolerances, ``restart`` below one.
    """
    if restart < 1:
        raise ValueError(f"restart must be at least 1, got {restart}")
    callback = options.pop("callback", None)
    matrix = stored(matrix)
    problem = replace(prepare(matrix, b, x0, **options, use_graph=False), callback=callback)
    if problem.b.ndim == 1:
        return _ArnoldiSolve(problem, restart).run()
    preconditioner = options.get("preconditioner")
    preconditioner = None if preconditioner is None else stored(preconditioner)
    columns = [
        _ArnoldiSolve(_column(problem, at, matrix, preconditioner), restart).run() for at in range(b.shape[1])
    ]
    x = torch.stack([result.x for result in columns], dim=1) if columns else problem.x
    return worst(columns, x, "gmres", "plain")


def _column(problem: LinearSystem, at: int, matrix: Operand, preconditioner: Operand | None) -> LinearSystem:
    """Return the system of one right-hand side."""
    apply, precondition = problem.apply, problem.precondition
    return replace(
        problem,
        scaling=problem.scaling.column(at),
        apply=_on_columns(apply) if is_bare_function(matrix) else apply,
        precondition=_on_columns(precondition)
        if precondition is not None and is_bare_function(preconditioner)
        else precondition,
        b=problem.b[:, at].contiguous(),
        x=problem.x[:, at].contiguous(),
        tolerance=problem.tolerance[at],
    )


def _on_columns(product: Product) -> Product:
    """Adapt a function that expects two-dimensional arguments."""
    return lambda x: product(x[:, None])[:, 0]
