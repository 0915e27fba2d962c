"""Tests of systems with very large and very small numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from sparse_core.formats import CSR, generators
from sparse_core.linalg import SolveResult, bicgstab, cg, gmres, jacobi, minres

Solver = Callable[..., SolveResult]
SOLVERS = [cg, bicgstab, gmres, minres]
#: Powers of two about 1e-300, 1e-160, 1e160, 1e300 and, in single precision, 1e-24, 1e-12, 1e12 and 1e20.
SCALES = {torch.float64: (-996, -532, 0, 532, 996), torch.float32: (-80, -40, 0, 40, 66)}


def system(dtype: torch.dtype, of_a: int = 0, of_b: int = 0) -> tuple[CSR, Tensor]:
    matrix = generators.poisson_2d(4).to(dtype)
    b = torch.linspace(-1, 2, 16, dtype=dtype)
    return matrix.with_values(times(matrix.values, of_a)), times(b, of_b)


def times(values: Tensor, exponent: int) -> Tensor:
    return values * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2)


def exact_share(matrix: CSR, x: Tensor, b: Tensor) -> float:
    """``‖b - A x‖ / ‖b‖`` without limits of range."""

    def fractions(numbers: Tensor) -> list[Fraction]:
        return [Fraction(number) for number in numbers.double().tolist()]

    dense, unknowns, right = matrix.to_dense(), fractions(x), fractions(b)
    left = [
        side - sum(a * u for a, u in zip(fractions(row), unknowns, strict=True))
        for side, row in zip(right, dense, strict=True)
    ]
    square = sum(one * one for one in left) / sum(one * one for one in right)
    return math.sqrt(square)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", SCALES)
def test_scaled_systems_take_the_same_steps(solver: Solver, dtype: torch.dtype) -> None:
    """Powers of two change no bit of x."""
    expected = solver(*system(dtype))
    assert expected.converged
    for of_a in SCALES[dtype]:
        for of_b in SCALES[dtype]:
            matrix, b = system(dtype, of_a, of_b)
            found = solver(matrix, b)
            scaled = times(expected.x, of_b - of_a)
            if torch.equal(times(scaled, of_a - of_b), expected.x):
                assert found.converged, (of_a, of_b, found.reason)
                assert torch.equal(found.x, scaled), (of_a, of_b)
                assert found.iterations == expected.iterations
                assert found.true_residual == math.ldexp(expected.true_residual, of_b)
                assert found.residuals == tuple(math.ldexp(norm, of_b) for norm in expected.residuals)
            else:
                # The exact residual below checks whether the remaining digits suffice.
                assert found.converged or "leaves the range" in found.reason
                assert found.x.isfinite().all()
            assert not found.converged or exact_share(matrix, found.x, b) <= 2e-5


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", SCALES)
def test_functions_and_preconditioners_of_any_size(solver: Solver, dtype: torch.dtype) -> None:
    for of_a in SCALES[dtype]:
        matrix, b = system(dtype, of_a, of_a // 2)
        found = solver(lambda x, matrix=matrix: matrix @ x, b, preconditioner=jacobi(matrix))
        assert found.converged, (of_a, found.reason)
        assert exact_share(matrix, found.x, b) <= 2e-5
        own = solver(matrix, b, preconditioner=lambda r: times(r, SCALES[r.dtype][-1]))
        assert own.converged, (of_a, own.reason)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", SCALES)
def test_starts_of_any_magnitude(solver: Solver, dtype: torch.dtype) -> None:
    for of_x in SCALES[dtype]:
        matrix, b = system(dtype)
        start = times(torch.linspace(3, -1, 16, dtype=dtype), of_x)
        found = solver(matrix, b, start)
        assert found.x.isfinite().all()
        assert not found.converged or exact_share(matrix, found.x, b) <= 2e-5
        assert found.converged or of_x > 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_columns_of_different_sizes(solver: Solver) -> None:
    matrix, b = system(torch.float64)
    sizes = (-996, 0, 900)
    found = solver(matrix, torch.stack([times(b, size) for size in sizes], dim=1))
    assert found.converged
    for at, size in enumerate(sizes):
        alone = solver(matrix, times(b, size))
        torch.testing.assert_close(times(found.x[:, at], -size), times(alone.x, -size), rtol=1e-9, atol=1e-9)
        assert found.columns[at].tolerance == pytest.approx(alone.tolerance)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_callback_sees_the_system_that_was_given(solver: Solver) -> None:
    matrix, b = system(torch.float64, -996, -900)
    seen: list[tuple[Tensor, float]] = []
    found = solver(matrix, b, callback=lambda count, x, norm: seen.append((x.clone(), norm)))
    assert torch.equal(seen[-1][0], found.x)
    assert seen[-1][1] in (*found.residuals, found.true_residual)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_absolute_tolerance_holds_at_any_size(solver: Solver) -> None:
    matrix, b = system(torch.float64, 0, -996)
    assert solver(matrix, b, atol=1.0).iterations == 0
    assert solver(matrix, b, atol=1e-320).tolerance == pytest.approx(1e-5 * math.ldexp(1, -996) * 5, rel=0.5)
