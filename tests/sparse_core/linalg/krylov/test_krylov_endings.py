"""Tests of how a solve ends, and of its result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sparse_core.errors import ConvergenceError, SparseError
from sparse_core.formats import CSR
from sparse_core.linalg import SolveResult, bicgstab, cg, gmres, minres
from sparse_core.linalg.krylov.conjugate_gradient import ConjugateGradient

Solver = Callable[..., SolveResult]
every_solver = pytest.mark.parametrize("solver", [cg, bicgstab, gmres, minres])


def line(size: int, dtype: torch.dtype = torch.float64, shift: float = 0.0) -> CSR:
    off = -torch.ones(size - 1, dtype=dtype)
    middle = torch.full((size,), 2 + shift, dtype=dtype)
    return CSR.from_dense(torch.diag(middle) + torch.diag(off, 1) + torch.diag(off, -1))


def ones(size: int) -> Tensor:
    return torch.ones(size, dtype=torch.float64)


@every_solver
@pytest.mark.parametrize("x0", [None, 3.0])
def test_zero_right_hand_side(solver: Solver, x0: float | None, device: torch.device) -> None:
    start = None if x0 is None else torch.full((6,), x0, dtype=torch.float64, device=device)
    result = solver(line(6).to(device), torch.zeros(6, dtype=torch.float64, device=device), start)
    assert (result.converged, result.iterations, result.residuals) == (True, 0, (0.0,))
    assert not result.x.any()


@every_solver
def test_empty_system(solver: Solver, device: torch.device) -> None:
    result = solver(CSR.from_dense(torch.zeros(0, 0)).to(device), torch.zeros(0, device=device))
    assert (result.converged, result.iterations) == (True, 0)
    assert result.x.shape == (0,)


@every_solver
def test_one_unknown(solver: Solver) -> None:
    result = solver(torch.tensor([[4.0]]), torch.tensor([2.0]))
    assert (result.converged, result.iterations, result.x.item()) == (True, 1, 0.5)


@every_solver
def test_a_good_start_needs_no_iteration(solver: Solver, device: torch.device) -> None:
    matrix, x = line(9).to(device), torch.arange(9.0, dtype=torch.float64, device=device)
    b = matrix @ x
    before = x.clone()
    result = solver(matrix, b, x)
    assert (result.converged, result.iterations) == (True, 0)
    assert torch.equal(result.x, x)
    near = solver(matrix, b, x + 1e-3, rtol=1e-12)
    assert near.converged
    assert near.residuals[0] == pytest.approx(float(torch.linalg.vector_norm(b - matrix @ (x + 1e-3))))
    assert torch.equal(x, before)


@every_solver
def test_iterations_run_out(solver: Solver, device: torch.device) -> None:
    result = solver(line(50).to(device), ones(50).to(device), max_iterations=7, check_every=4)
    assert (result.converged, result.iterations, result.reason) == (False, 7, "max_iterations")
    assert len(result.residuals) == 8
    with pytest.raises(ConvergenceError, match=r"did not reach .* in 7 iterations \(max") as caught:
        result.raise_if_failed()
    assert caught.value.result is result
    assert isinstance(caught.value, SparseError)
    none = solver(line(50).to(device), ones(50).to(device), max_iterations=0)
    assert (none.converged, none.iterations, none.reason) == (False, 0, "max_iterations")


@every_solver
def test_absolute_and_relative_tolerance(solver: Solver) -> None:
    matrix, b = line(30, shift=0.5), ones(30)
    loose = solver(matrix, b, rtol=1e-8, atol=0.1)
    assert (loose.tolerance, loose.converged) == (0.1, True)
    tight = solver(matrix, b, rtol=1e-8, atol=1e-12)
    assert tight.tolerance == pytest.approx(1e-8 * 30**0.5)
    assert loose.iterations < tight.iterations
    assert tight.true_residual <= tight.tolerance < loose.true_residual <= 0.1
    assert tight.raise_if_failed() is tight


@every_solver
def test_callback_sees_the_iterates_and_can_stop(solver: Solver, device: torch.device) -> None:
    seen: list[tuple[int, float]] = []
    matrix, b = line(40).to(device), ones(40).to(device)

    def watch(iteration: int, x: Tensor, norm: float) -> bool:
        assert float(torch.linalg.vector_norm(b - matrix @ x)) == pytest.approx(norm, rel=1e-6)
        seen.append((iteration, norm))
        return len(seen) == 3

    options = {"restart": 2} if solver is gmres else {}
    result = solver(matrix, b, callback=watch, **options)
    assert (result.converged, result.reason) == (False, "stopped by callback")
    step = 2 if solver is gmres else 1
    assert [iteration for iteration, _ in seen] == [step, 2 * step, 3 * step]
    assert result.iterations == 3 * step
    assert result.residuals[step] == pytest.approx(seen[0][1])


@every_solver
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_right_hand_side_that_is_not_finite(solver: Solver, value: float, device: torch.device) -> None:
    b = ones(5).to(device)
    b[3] = value
    result = solver(line(5).to(device), b)
    assert (result.converged, result.iterations) == (False, 0)
    assert result.reason == f"breakdown: b is not finite: {value} at row 3"


@every_solver
@pytest.mark.parametrize("check_every", [1, 5])
def test_matrix_that_is_not_finite(solver: Solver, check_every: int, device: torch.device) -> None:
    matrix = line(5)
    matrix.values[4] = float("nan")
    result = solver(matrix.to(device), ones(5).to(device), check_every=check_every)
    assert (result.converged, result.iterations) == (False, 0)
    assert result.reason.startswith("breakdown: a value is not finite at iteration 1")
    assert not result.x.any()


@pytest.mark.parametrize("check_every", [1, 6])
def test_cg_on_an_indefinite_matrix(check_every: int, device: torch.device) -> None:
    matrix = CSR.from_dense(torch.diag(torch.tensor([1.0, 2.0, 3.0, -1.0], dtype=torch.float64))).to(device)
    b = torch.tensor([1.0, 1.0, 1.0, 0.5], dtype=torch.float64, device=device)
    result = cg(matrix, b, check_every=check_every)
    assert not result.converged
    assert result.reason.startswith("not positive definite: p·Ap = -")
    assert result.x.isfinite().all()
    assert bicgstab(matrix, b).converged
    assert gmres(matrix, b).converged


def test_cg_with_a_preconditioner_that_is_not_definite(device: torch.device) -> None:
    result = cg(line(5).to(device), ones(5).to(device), preconditioner=lambda r: -r)
    assert result.reason.startswith("not positive definite: r·M r <= 0 at iteration 1, so the preconditioner")
    assert not result.x.any()


def test_bicgstab_breakdowns() -> None:
    rotation = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    result = bicgstab(rotation, torch.tensor([1.0, 0.0]))
    assert result.reason == "breakdown: r̂·Ap = 0 at iteration 1"
    # s = (0, -1) after the first half step, and A s is orthogonal to it.
    late = bicgstab(torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.tensor([1.0, 0.0]))
    assert late.reason == "breakdown: omega = 0 at iteration 2: A M s is orthogonal to s"
    assert late.iterations == 1
    assert late.x.tolist() == [1.0, 0.0]


@every_solver
def test_singular_matrix(solver: Solver) -> None:
    """Every solver reports an inconsistent system."""
    zero = solver(torch.zeros(3, 3), torch.ones(3))
    assert not zero.converged
    assert zero.reason.startswith(("breakdown: ", "not positive definite: p·Ap = 0", "least squares: "))
    assert not zero.x.any()
    half = solver(torch.diag(torch.tensor([1.0, 0.0])), torch.tensor([1.0, 1.0]), max_iterations=50)
    assert not half.converged
    assert half.x.isfinite().all()


def test_gmres_that_stagnates_says_so() -> None:
    """A cyclic shift makes no progress before its last step."""
    shift = torch.roll(torch.eye(8, dtype=torch.float64), 1, dims=0)
    b = torch.zeros(8, dtype=torch.float64)
    b[0] = 1
    result = gmres(shift, b, restart=4)
    assert result.reason.startswith("stagnation: 4 iterations between restarts")
    assert result.iterations == 4
    full = gmres(shift, b, restart=8)
    assert (full.converged, full.iterations) == (True, 8)


@every_solver
def test_rounding_above_the_tolerance_is_reported(solver: Solver, device: torch.device) -> None:
    """In float32 the recurrence's residual falls below what ``b - A x`` can reach."""
    matrix, b = line(60, torch.float32, shift=0.01).to(device), torch.ones(60, device=device)
    result = solver(matrix, b, rtol=1e-8, restart=60) if solver is gmres else solver(matrix, b, rtol=1e-8)
    assert not result.converged
    assert result.reason.startswith(("stagnation: rounding in float32 holds", "breakdown: the Krylov space"))
    dense, x = matrix.to_dense().double(), result.x.double()
    assert torch.linalg.vector_norm(b.double() - dense @ x) > result.tolerance
    # Rounding of the residual in float32; the exact value differs between processors.
    rounding = torch.finfo(torch.float32).eps * torch.linalg.vector_norm(dense.abs() @ x.abs() + b.double())
    assert result.true_residual < 2 * rounding


def test_a_restart_makes_up_for_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrence alone misses the tolerance; restarted from the true residual it does not."""
    missed: list[float] = []
    begin = ConjugateGradient.begin

    def watched(self: ConjugateGradient, columns: Tensor, residual: Tensor) -> None:
        missed.append(float(torch.linalg.vector_norm(residual)))
        begin(self, columns, residual)

    monkeypatch.setattr(ConjugateGradient, "begin", watched)
    matrix = line(300, torch.float32, shift=0.001)
    b = torch.randn(300, generator=torch.Generator().manual_seed(0))
    result = cg(matrix, b, rtol=1e-5)
    assert result.converged
    assert len(missed) > 1
    assert missed[1] > result.tolerance >= result.true_residual
    assert len(result.residuals) == result.iterations + 1


@pytest.mark.parametrize("solver", [cg, bicgstab, minres])
def test_result_does_not_depend_on_check_every(solver: Solver, device: torch.device) -> None:
    matrix, b = line(40, shift=0.3).to(device), ones(40).to(device)
    results = [solver(matrix, b, check_every=every, use_graph=False) for every in (1, 2, 7, 60)]
    for result in results[1:]:
        assert torch.equal(result.x, results[0].x)
        assert result.residuals == results[0].residuals
        assert result.iterations == results[0].iterations
    assert 7 < results[0].iterations < 40


def test_gmres_does_not_depend_on_check_every() -> None:
    results = [gmres(line(40, shift=0.3), ones(40), check_every=every) for every in (1, 7, 60)]
    assert results[0].iterations == results[1].iterations == results[2].iterations
    assert torch.equal(results[0].x, results[1].x)
    assert torch.equal(results[0].x, results[2].x)
