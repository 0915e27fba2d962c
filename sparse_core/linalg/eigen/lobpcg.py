"""LOBPCG: the largest or smallest eigenvalues of a Hermitian matrix, from products only.

Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate
gradient method", 2001. The basis of each step is orthonormalised by the eigenvectors of its Gram matrix
(Duersch, Shao, Yang and Gu, "A robust and efficient implementation of LOBPCG", 2018). Dependent directions
then drop out instead of breaking the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sparse_core.formats.base import SparseMatrix
from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.eigen.result import EigenResult
from sparse_core.linalg.krylov.problem import (
    Operand,
    Product,
    check_numbers,
    in_dtype,
    product_with,
    safe_norms,
)
from sparse_core.linalg.krylov.scaling import (
    choose_scaling,
    magnitude_of,
    scaled_number,
    scaled_product,
    times_power,
    usual_columns,
)
from sparse_core.linalg.operands import WORKING_DTYPES


@dataclass
class _Block:
    """Vectors (M, n) with their products."""

    vectors: Tensor
    of_a: Tensor
    of_b: Tensor

    def combine(self, weights: Tensor) -> _Block:
        """Return linear combinations with weights (n, k)."""
        return _Block(self.vectors @ weights, self.of_a @ weights, self.of_b @ weights)

    def columns(self, which: Tensor) -> _Block:
        """Select vectors."""
        return _Block(self.vectors[:, which], self.of_a[:, which], self.of_b[:, which])


@dataclass
class _EigenProblem:
    """Products and constraints of an eigenproblem."""

    apply_a: Product
    apply_b: Product | None
    precondition: Product | None
    constraints: tuple[Tensor, Tensor] | None
    largest: bool

    def block(self, vectors: Tensor) -> _Block:
        """Return the vectors with new products."""
        of_b = vectors if self.apply_b is None else self.apply_b(vectors)
        return _Block(vectors, self.apply_a(vectors), of_b)

    def constrain(self, vectors: Tensor) -> Tensor:
        """Project the vectors onto the space orthogonal to the constraints."""
        if self.constraints is None:
            return vectors
        dual, basis = self.constraints
        return vectors - basis @ (dual.mH @ vectors)

    def rayleigh_ritz(self, space: _Block, wanted: int) -> tuple[Tensor, Tensor, int]:
        """Return the best pairs in a space, values (k,) and weights (n, k), and the space's dimension."""
        gram = _hermitian(space.vectors.mH @ space.of_b)
        basis = _orthonormal(gram)
        inner = _hermitian(basis.mH @ (space.vectors.mH @ space.of_a) @ basis)
        values, weights = torch.linalg.eigh(inner)
        if self.largest:
            values, weights = values.flip(0), weights.flip(1)
        return values[:wanted], basis @ weights[:, :wanted], basis.shape[1]


@dataclass(frozen=True)
class _Scaling:
    """Powers of two: ``A / 2^of_a`` and ``B / 2^of_b`` replace A and B, so that squares stay in range.

    ``of_b`` is even, because vectors are scaled by its root.
    """

    of_a: int
    of_b: int

    @property
    def residual(self) -> int:
        """Exponent of ``A v - λ B v`` relative to the scaled problem."""
        return self.of_a - self.of_b // 2

    def restore(self, result: EigenResult, tolerance: float) -> EigenResult:
        """Return the pairs of the original problem from those of the scaled one."""
        if not (self.of_a or self.of_b):
            return result
        values = times_power(result.values, [self.of_a - self.of_b])
        inexact = not torch.equal(times_power(values, [self.of_b - self.of_a]), result.values)

        def scaled(norms: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(scaled_number(norm, self.residual) for norm in norms)

        return replace(
            result,
            values=values,
            vectors=times_power(result.vectors, [-self.of_b // 2]),
            converged=result.converged and not inexact,
            residuals=tuple(map(scaled, result.residuals)),
            tolerance=tolerance,
            reason=f"breakdown: λ leaves the range of {values.dtype}: scale A or B"
            if inexact
            else result.reason,
            true_residuals=scaled(result.true_residuals),
        )


def _hermitian(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mH) / 2


def _orthonormal(gram: Tensor) -> Tensor:
    """Return weights (n, m) that orthonormalise a basis of this Gram matrix; dependent ones drop out."""
    scale = gram.diagonal().real.clamp(min=0).sqrt()
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    values, vectors = torch.linalg.eigh(_hermitian(inverse[:, None] * gram * inverse))
    kept = values > 10 * len(gram) * torch.finfo(values.dtype).eps * values.max().clamp(min=0)
    weights: Tensor = inverse[:, None] * (vectors[:, kept] / values[kept].sqrt())
    return weights


@torch.no_grad()
@without_autocast
def lobpcg(
    matrix: Operand,
    x: Tensor,
    b: Operand | None = None,
    *,
    preconditioner: Operand | None = None,
    constraints: Tensor | None = None,
    tol: float | None = None,
    max_iterations: int = 20,
    largest: bool = True,
) -> EigenResult:
    """Compute some extreme eigenpairs of ``A v = λ B v`` by LOBPCG.

    Arguments and defaults are scipy's. Smallest eigenvalues need a preconditioner to converge fast, such as
    algebraic multigrid or a factorisation of A. If the block has at least a fifth of the rows of A, the dense
    eigenproblem is solved instead. Convergence is verified with new products. No gradient flows.

    Args:
        matrix: (M, M) Hermitian: sparse matrix, torch tensor, or a function that returns ``A X`` for (M, n).
        x: (M, K) start, float32, float64, complex64 or complex128; for example random. K pairs are computed.
        b: (M, M) Hermitian positive definite B; None is the identity.
        preconditioner: approximation of ``A^-1``: a ``Preconditioner``, a function, or a matrix.
        constraints: (M, L) vectors, such as known eigenvectors; the search is B-orthogonal to them.
        tol: of ``‖A v - λ B v‖``; None is ``M sqrt(eps)`` of the dtype.
        max_iterations: 20, as in scipy.
        largest: compute the largest eigenvalues, else the smallest.

    Returns:
        The result; without convergence, ``converged`` is False and ``reason`` explains it.

    Raises:
        TypeError: half precision or integer ``x``.
        ValueError: shapes or devices that do not match; fewer rows than pairs; a start, or constraints, of
            dependent or non-finite vectors.
    """
    problem, start, scaling = _prepare(matrix, x, b, preconditioner, constraints, largest)
    rows, wanted = start.shape
    eps = torch.finfo(start.dtype).eps
    tolerance = rows * math.sqrt(eps) if tol is None else tol
    check_numbers(start, max_iterations, tol=tolerance)
    if wanted == 0:
        empty = start.real.new_zeros(0)
        return EigenResult(empty, start, True, 0, (), tolerance, "converged", ())
    free = rows if constraints is None else rows - constraints.shape[1]
    if free < 5 * wanted:
        start = problem.constrain(torch.eye(rows, dtype=start.dtype, device=start.device))
    scaled = scaled_number(tolerance, -scaling.residual)
    return scaling.restore(_EigenSolve(problem, scaled, max_iterations, wanted).run(start), tolerance)


class _EigenSolve:
    """Iterations of one call."""

    def __init__(self, problem: _EigenProblem, tolerance: float, max_iterations: int, wanted: int) -> None:
        self.problem, self.tolerance = problem, tolerance
        self.max_iterations, self.wanted = max_iterations, wanted
        self.history: list[tuple[float, ...]] = []

    def run(self, start: Tensor) -> EigenResult:
        """Iterate from a start of K vectors, or solve in the whole space."""
        problem = self.problem
        space = problem.block(start)
        if not bool(torch.isfinite(space.of_a).all() & torch.isfinite(space.of_b).all()):
            zeros = start.real.new_zeros(self.wanted)
            return self._result(zeros, start[:, : self.wanted], "breakdown: a product is not finite")
        values, weights, _ = problem.rayleigh_ritz(space, self.wanted)
        if len(values) < self.wanted:
            raise ValueError("x has dependent vectors, or vectors in the space of the constraints")
        pairs, towards = space.combine(weights), None
        fresh = False
        while True:
            residual = pairs.of_a - pairs.of_b * values
            norms = tuple(torch.linalg.vector_norm(residual, dim=0).tolist())
            if not all(map(math.isfinite, norms)):
                return self._result(values, pairs.vectors, "breakdown: a value is not finite")
            if not fresh:
                self.history.append(norms)
            active = [at for at, norm in enumerate(norms) if norm > self.tolerance]
            done = len(self.history) - 1 >= self.max_iterations
            if not active or done:
                if not active and not fresh:
                    # Combined products drift by rounding, so verify with new ones.
                    pairs, fresh = problem.block(pairs.vectors), True
                    continue
                return self._result(values, pairs.vectors, "max_iterations" if active else "converged")
            fresh = False
            step = self._step(pairs, towards, residual, torch.tensor(active, device=residual.device))
            if step is None:
                return self._result(values, pairs.vectors, "breakdown: no finite direction is left")
            values, pairs, towards = step

    def _step(
        self, pairs: _Block, towards: _Block | None, residual: Tensor, active: Tensor
    ) -> tuple[Tensor, _Block, _Block] | None:
        """Return the best pairs in the space of the pairs, their corrections and the last directions."""
        problem = self.problem
        correction = residual[:, active]
        if problem.precondition is not None:
            correction = problem.precondition(correction)
        correction = problem.constrain(correction)
        # Twice, because the remainder may be small compared with the subtracted part.
        for _ in range(2):
            correction = correction - pairs.vectors @ (pairs.of_b.mH @ correction)
        length = safe_norms(correction)
        correction = correction[:, length > 0] / length[length > 0]
        if correction.shape[1] == 0 or not bool(torch.isfinite(correction).all()):
            return None
        parts = [pairs, problem.block(correction)]
        if towards is not None:
            parts.append(towards.columns(active))
        space = _Block(
            *(
                torch.cat([getattr(part, name) for part in parts], dim=1)
                for name in ("vectors", "of_a", "of_b")
            )
        )
        if not bool(torch.isfinite(space.of_a).all() & torch.isfinite(space.of_b).all()):
            return None
        values, weights, _ = problem.rayleigh_ritz(space, self.wanted)
        if len(values) < self.wanted:
            return None
        rest = weights.clone()
        rest[: self.wanted] = 0
        return values, space.combine(weights), space.combine(rest)

    def _result(self, values: Tensor, vectors: Tensor, reason: str) -> EigenResult:
        block = self.problem.block(vectors)
        residual = torch.linalg.vector_norm(block.of_a - block.of_b * values, dim=0)
        norms = tuple(residual.tolist())
        converged = all(norm <= self.tolerance for norm in norms)
        return EigenResult(
            values=values,
            vectors=vectors,
            converged=converged and reason in ("converged", "max_iterations"),
            iterations=max(0, len(self.history) - 1),
            residuals=tuple(self.history),
            tolerance=self.tolerance,
            reason="converged" if converged and reason == "max_iterations" else reason,
            true_residuals=norms,
        )


def _prepare(
    matrix: Operand,
    x: Tensor,
    b: Operand | None,
    preconditioner: Operand | None,
    constraints: Tensor | None,
    largest: bool,
) -> tuple[_EigenProblem, Tensor, _Scaling]:
    """Check the arguments, convert to one working dtype and scale the problem."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch tensor, got {type(x).__name__}")
    if x.ndim != 2:
        raise ValueError(f"x must have shape (M, K), got {tuple(x.shape)}")
    dtype = x.dtype
    for operand in (matrix, b, constraints):
        if isinstance(operand, SparseMatrix | Tensor):
            dtype = torch.promote_types(dtype, operand.dtype)
    if dtype not in WORKING_DTYPES:
        raise TypeError(
            f"lobpcg works in float32, float64, complex64 and complex128, not in {dtype}: pass"
            " x.to(torch.float32)"
        )
    start = x.detach().to(dtype)
    if not bool(torch.isfinite(start).all()):
        raise ValueError("x must be finite")
    if start.shape[1] > start.shape[0]:
        raise ValueError(f"x has {start.shape[1]} vectors but only {start.shape[0]} rows: use fewer vectors")

    def product(operand: Operand, name: str) -> Product:
        return in_dtype(product_with(operand, start, name, rows_of="x"), dtype)

    start = usual_columns(start)
    apply_a, apply_b = product(matrix, "matrix"), None if b is None else product(b, "b")
    of_a = _exponent_of(matrix, apply_a, start)
    of_b = 0 if b is None or apply_b is None else _exponent_of(b, apply_b, start) // 2 * 2
    problem = _EigenProblem(
        in_dtype(scaled_product(matrix, apply_a, of_a), dtype),
        None if apply_b is None else in_dtype(scaled_product(b, apply_b, of_b), dtype),
        None
        if preconditioner is None
        else scaled_product(None, product(preconditioner, "preconditioner"), -of_a),
        None,
        largest,
    )
    if constraints is not None and constraints.numel():
        if constraints.ndim != 2 or len(constraints) != len(start) or constraints.device != start.device:
            raise ValueError(
                f"constraints must have shape ({len(start)}, L) on {start.device},"
                f" got {tuple(constraints.shape)} on {constraints.device}"
            )
        if constraints.shape[1] + start.shape[1] > len(start):
            raise ValueError("x and constraints together have more vectors than rows")
        fixed = usual_columns(constraints.detach().to(dtype))
        dual = fixed if problem.apply_b is None else problem.apply_b(fixed)
        gram = _hermitian(fixed.mH @ dual)
        if not bool(torch.isfinite(gram).all()) or _orthonormal(gram).shape[1] < gram.shape[0]:
            raise ValueError("constraints must be finite and independent")
        weights = _orthonormal(gram)
        problem.constraints = (dual @ weights, fixed @ weights)
        start = problem.constrain(start)
    return problem, start, _Scaling(of_a, of_b)


def _exponent_of(operand: Operand, product: Product, start: Tensor) -> int:
    """Return the power of two that scales an operand to a usual size."""

    def magnitude(usual: Tensor) -> float:
        if isinstance(operand, SparseMatrix | Tensor):
            return magnitude_of(operand)
        return float(product(usual).abs().max()) if usual.numel() else 0.0

    return choose_scaling(magnitude, start, None).matrix
