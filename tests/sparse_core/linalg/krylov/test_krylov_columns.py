"""Several right-hand sides: each column is a solve of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sparse_core.errors import ConvergenceError
from sparse_core.formats import COO, CSR
from sparse_core.linalg import SolveResult, bicgstab, cg, gmres, jacobi, minres
from sparse_core.linalg.krylov.conjugate_gradient import _failure
from sparse_core.linalg.krylov.progress import Progress

both = pytest.mark.parametrize("solver", [cg, bicgstab, gmres, minres])
Solver = Callable[..., SolveResult]


def system(dtype: torch.dtype = torch.float64) -> tuple[CSR, Tensor]:
    generator = torch.Generator().manual_seed(3)
    factor = torch.randn(30, 30, dtype=dtype, generator=generator) / 6
    dense = factor @ factor.mH + torch.diag(torch.linspace(1, 4, 30)).to(dtype)
    b = torch.randn(30, 4, dtype=dtype, generator=generator)
    b[:, 1] = 0
    b[:, 2] = dense @ torch.ones(30, dtype=dtype)
    b[:, 3] *= 1e-6
    return CSR.from_dense(dense), b


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("check_every", [1, 9])
def test_columns_are_solved_on_their_own(
    solver: Solver, dtype: torch.dtype, check_every: int, device: torch.device
) -> None:
    matrix, b = system(dtype)
    matrix, b = matrix.to(device), b.to(device)
    result = solver(matrix, b, rtol=1e-8, check_every=check_every)
    assert result.converged
    assert result.x.shape == b.shape
    assert len(result.columns) == 4
    for column, part in enumerate(result.columns):
        alone = solver(matrix, b[:, column], rtol=1e-8)
        assert abs(part.iterations - alone.iterations) <= 1
        assert part.converged
        assert part.tolerance == pytest.approx(alone.tolerance)
        assert torch.equal(part.x, result.x[:, column])
        assert len(part.residuals) == part.iterations + 1
        residual = torch.linalg.vector_norm(b[:, column] - matrix @ part.x)
        assert residual <= part.tolerance
    assert result.columns[1].iterations == 0
    assert result.iterations == max(part.iterations for part in result.columns)


@both
def test_preconditioned_columns(solver: Solver, device: torch.device) -> None:
    matrix, b = system()
    matrix, b = matrix.to(device), b.to(device)
    result = solver(matrix, b, rtol=1e-8, preconditioner=jacobi(matrix))
    assert result.converged
    torch.testing.assert_close(matrix @ result.x, b, rtol=0, atol=1e-6)


@both
def test_a_column_that_fails_is_named_and_leaves_the_others_alone(solver: Solver) -> None:
    matrix, b = system()
    b[4, 2] = float("nan")
    result = solver(matrix, b, rtol=1e-8)
    assert not result.converged
    assert result.reason == "breakdown: b is not finite: nan at row 4 (column 2)"
    assert [part.converged for part in result.columns] == [True, True, False, True]
    assert result.x.isfinite().all()
    with pytest.raises(ConvergenceError, match=r"column 2"):
        result.raise_if_failed()


def test_indefinite_for_one_column_only() -> None:
    matrix = COO.from_dense(torch.diag(torch.tensor([2.0, 3.0, -1.0])))
    b = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    result = cg(matrix, b)
    assert [part.converged for part in result.columns] == [True, False]
    assert "not positive definite: p·Ap = -1" in result.reason
    torch.testing.assert_close(result.x[:, 0], torch.tensor([1 / 2, 1 / 3, 0.0]))


@both
def test_no_column_and_no_row(solver: Solver) -> None:
    none = solver(torch.eye(3), torch.ones(3, 0))
    assert (none.converged, none.x.shape, none.columns) == (True, (3, 0), ())
    empty = solver(torch.zeros(0, 0), torch.zeros(0, 2))
    assert (empty.converged, empty.x.shape) == (True, (0, 2))


def test_start_for_every_column() -> None:
    matrix, b = system()
    x = cg(matrix, b, rtol=1e-12).x
    again = cg(matrix, b, x, rtol=1e-8)
    assert (again.converged, again.iterations) == (True, 0)
    far = cg(matrix, b, x + 1, rtol=1e-8)
    assert far.converged
    # The solution for a zero column is known, whatever the start.
    assert not far.x[:, 1].any()


@pytest.mark.parametrize("rho", [2.0, 0.0, torch.nan])
@pytest.mark.parametrize("curvature", [2.0, -1.0, torch.inf])
@pytest.mark.parametrize("norm", [0.5, 3.0, torch.nan])
def test_a_vector_and_a_column_record_the_same_progress(rho: float, curvature: float, norm: float) -> None:
    readings = []
    for shape in ((), (1,)):
        progress = Progress(torch.ones(shape), 2, 2)
        for slot in range(2):
            scalars = [torch.full(shape, value) for value in (rho, curvature)]
            failure = _failure(*scalars)
            assert bool(progress.allows(failure)) == bool(progress.running & (failure == 0))
            progress.record(slot, torch.full(shape, norm), failure, scalars[1])
        readings.append(str(progress.read()))  # NaN does not equal itself
    assert readings[0] == readings[1]
