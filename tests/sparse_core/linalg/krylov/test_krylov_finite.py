"""After every failure ``x`` is finite and not reported as converged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import SolveResult, bicgstab, cg, gmres, minres

Solver = Callable[..., SolveResult]
every_solver = pytest.mark.parametrize("solver", [cg, bicgstab, gmres, minres])
NAN, INF = float("nan"), float("inf")


def diagonal(*numbers: float) -> CSR:
    return CSR.from_dense(torch.diag(torch.tensor(numbers, dtype=torch.float64)))


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def check(result: SolveResult, matrix: CSR, b: Tensor) -> None:
    assert result.x.isfinite().all()
    left = b - matrix @ result.x
    # Squares of large numbers overflow.
    scale = left.abs().max() if 0 < left.abs().max() < INF else torch.tensor(1.0)
    residual = torch.linalg.vector_norm(left / scale) * scale
    assert result.true_residual == pytest.approx(float(residual), nan_ok=True)
    assert not result.converged or float(residual) <= result.tolerance


@every_solver
@pytest.mark.parametrize("check_every", [1, 7])
@pytest.mark.parametrize("numbers", [(1.0, 2.0, 0.0), (1.0, 2.0, 3.0, 4.0, 0.0)])
def test_inconsistent_singular_diagonal(solver: Solver, check_every: int, numbers: tuple[float, ...]) -> None:
    """The component in the null space grows until it overflows."""
    matrix, b = diagonal(*numbers), torch.ones(len(numbers), dtype=torch.float64)
    result = solver(matrix, b, check_every=check_every)
    check(result, matrix, b)
    assert not result.converged
    assert result.true_residual < float(torch.linalg.vector_norm(b))


def test_the_iterate_given_back_is_the_best() -> None:
    matrix, b = diagonal(1, 2, 3, 4, 0), torch.ones(5, dtype=torch.float64)
    result = cg(matrix, b)
    assert result.reason.startswith("breakdown: a value is not finite")
    finite = [norm for norm in result.residuals if norm < INF]
    assert result.true_residual == pytest.approx(min(finite[1:]), rel=1e-12)
    shorter = cg(matrix, b, max_iterations=finite.index(min(finite[1:])))
    assert torch.equal(result.x, shorter.x)


@pytest.mark.parametrize("solver", [cg, bicgstab, gmres, minres])
def test_only_the_columns_that_overflow_are_replaced(solver: Solver) -> None:
    matrix = diagonal(1, 2, 3, 0)
    b = torch.stack([vector(1, 1, 1, 1), vector(1, 1, 1, 0), vector(1, 2, NAN, 0), vector(0, 0, 0, 0)], dim=1)
    result = solver(matrix, b)
    assert [column.converged for column in result.columns] == [False, True, False, True]
    assert result.x.isfinite().all()
    alone = solver(matrix, b[:, 1])
    assert torch.equal(result.x[:, 1], alone.x)
    assert "b is not finite: nan at row 2" in result.columns[2].reason


@every_solver
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("entries", [(1.0, 1e200, 1e-200), (1e-160, 1e160, 1.0), (1e-300, 1.0, 1.0)])
def test_numbers_out_of_range(solver: Solver, scale: float, entries: tuple[float, ...]) -> None:
    matrix, b = diagonal(*entries), scale * torch.ones(3, dtype=torch.float64)
    check(solver(matrix, b), matrix, b)


@every_solver
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_start_that_is_not_finite(solver: Solver, value: float) -> None:
    matrix, b = diagonal(1, 2, 3), vector(1, 1, 1)
    result = solver(matrix, b, vector(0, value, 0))
    check(result, matrix, b)
    assert not result.converged
    assert result.reason.startswith("breakdown: a value is not finite")


@every_solver
@pytest.mark.parametrize("threshold", [INF, 0.7, 0.2])
def test_a_preconditioner_that_gives_nan(solver: Solver, threshold: float) -> None:
    matrix, b = diagonal(1, 2, 3, 4), vector(1, 1, 1, 1)

    def precondition(residual: Tensor) -> Tensor:
        return residual if bool(residual.norm() > threshold) else residual * NAN

    result = solver(matrix, b, preconditioner=precondition)
    check(result, matrix, b)
    # gmres multiplies vectors of norm 1, which only the first threshold catches.
    assert result.converged == (solver is gmres and threshold < 1)


@every_solver
def test_infinity_in_the_matrix(solver: Solver) -> None:
    matrix, b = diagonal(1, INF, 3), vector(1, 1, 1)
    result = solver(matrix, b)
    assert result.x.isfinite().all()
    assert not result.converged


@every_solver
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_right_hand_side_whose_squares_underflow_is_not_zero(solver: Solver, dtype: torch.dtype) -> None:
    """A norm of zero would give a tolerance of zero and x = 0."""
    matrix = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=dtype))
    scale = torch.finfo(dtype).tiny ** 0.65
    b = torch.full((3,), scale, dtype=dtype)
    result = solver(matrix, b)
    assert result.tolerance == pytest.approx(1e-5 * scale * 3**0.5, rel=1e-3)
    residual = float(torch.linalg.vector_norm((b - matrix @ result.x).double() / scale)) * scale
    assert residual <= result.tolerance
    assert result.converged


def test_gmres_leaves_out_the_direction_that_is_singular() -> None:
    """The result is the least-squares solution, not the start."""
    matrix, b = diagonal(1, 2, 3, 4, 0), torch.ones(5, dtype=torch.float64)
    result = gmres(matrix, b)
    assert result.true_residual == pytest.approx(1.0)
    torch.testing.assert_close(result.x[:4], vector(1, 1 / 2, 1 / 3, 1 / 4))
