"""LOBPCG against dense eigenvalues and scipy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.errors import ConvergenceError
from sparse_core.formats import CSR, generators
from sparse_core.linalg import algebraic_multigrid, lobpcg
from sparse_core.linalg.krylov.scaling import scaled_number, times_power

DTYPES = [torch.float32, torch.float64, torch.complex128]


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def hermitian(size: int, seed: int, dtype: torch.dtype) -> Tensor:
    full = random(size, size, seed=seed, dtype=dtype)
    return (full + full.mH) / 2


def eigenvalues(matrix: Tensor, b: Tensor | None, largest: bool) -> Any:
    wide = [None if one is None else one.to(torch.complex128).numpy() for one in (matrix, b)]
    found = scipy.linalg.eigh(*wide, eigvals_only=True)
    return found[::-1] if largest else found


@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 99),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.booleans(),
)
def test_eigenvalues(
    size: int, wanted: int, seed: int, dtype: torch.dtype, general: bool, largest: bool
) -> None:
    wanted = min(size, wanted)
    matrix = hermitian(size, seed, dtype)
    factor = random(size, size, seed=seed + 1, dtype=dtype)
    b = factor @ factor.mH / size + torch.eye(size, dtype=dtype) if general else None
    tolerance = 1e-3 if dtype == torch.float32 else 1e-7
    result = lobpcg(
        CSR.from_dense(matrix),
        random(size, wanted, seed=seed + 2, dtype=dtype),
        b,
        tol=tolerance,
        max_iterations=400,
        largest=largest,
    )
    assert result.converged
    expected = eigenvalues(matrix, b, largest)[:wanted]
    np.testing.assert_allclose(result.values.numpy(), expected, atol=10 * tolerance)
    inner = result.vectors.mH @ (result.vectors if b is None else b @ result.vectors)
    torch.testing.assert_close(inner, torch.eye(wanted, dtype=dtype), atol=100 * tolerance, rtol=0)
    residual = matrix @ result.vectors - (result.vectors if b is None else b @ result.vectors) * result.values
    assert float(residual.norm(dim=0).max()) <= tolerance * 1.01


def poisson(size: int) -> Any:
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(size, size))
    eye = scipy.sparse.eye_array(size)
    return scipy.sparse.csr_array(scipy.sparse.kron(line, eye) + scipy.sparse.kron(eye, line))


def test_multigrid_speeds_up_the_smallest_eigenvalues(device: torch.device) -> None:
    pytest.importorskip("pyamg", reason="multigrid is built by pyamg: pip install pyamg")
    array = poisson(30)
    matrix, start = CSR.from_scipy(array).to(device), random(900, 4, seed=0).to(device)
    options: dict[str, Any] = {"tol": 1e-8, "largest": False, "max_iterations": 40}
    result = lobpcg(matrix, start, preconditioner=algebraic_multigrid(matrix), **options)
    assert result.converged
    assert result.iterations < 30
    assert not lobpcg(matrix, start, **options).converged
    angles = np.arange(1, 31) * np.pi / 31
    sums = np.sort(np.add.outer(2 - 2 * np.cos(angles), 2 - 2 * np.cos(angles)).ravel())
    np.testing.assert_allclose(result.values.cpu().numpy(), sums[:4], atol=1e-12)


def test_about_as_many_iterations_as_scipy() -> None:
    array, start = poisson(15), random(225, 3, seed=0)
    history = scipy.sparse.linalg.lobpcg(
        array, start.numpy(), tol=1e-6, maxiter=200, retResidualNormsHistory=True
    )[2]
    result = lobpcg(CSR.from_scipy(array), start, tol=1e-6, max_iterations=200)
    assert result.converged
    assert result.iterations <= 1.2 * len(history)
    assert len(result.residuals) == result.iterations + 1


def test_constraints_exclude_known_vectors() -> None:
    matrix = hermitian(40, 0, torch.float64)
    expected = eigenvalues(matrix, None, True)
    first = lobpcg(matrix, random(40, 2, seed=1), tol=1e-9, max_iterations=300)
    rest = lobpcg(matrix, random(40, 2, seed=2), constraints=first.vectors, tol=1e-6, max_iterations=300)
    assert rest.converged
    np.testing.assert_allclose(rest.values.numpy(), expected[2:4], atol=1e-8)
    assert float((first.vectors.mT @ rest.vectors).abs().max()) < 1e-8
    # Also if a dense problem is solved instead.
    few = lobpcg(matrix, random(40, 9, seed=2), constraints=first.vectors)
    np.testing.assert_allclose(few.values.numpy(), expected[2:11], atol=1e-8)


def test_degenerate_and_zero_matrices() -> None:
    same = lobpcg(torch.eye(30, dtype=torch.float64), random(30, 3, seed=0))
    assert (same.converged, same.iterations) == (True, 0)
    np.testing.assert_allclose(same.values.numpy(), 1)
    assert lobpcg(torch.zeros(30, 30), torch.rand(30, 2)).values.tolist() == [0, 0]
    assert lobpcg(torch.eye(3), torch.ones(3, 0)).values.shape == (0,)
    assert lobpcg(torch.zeros(0, 0), torch.ones(0, 0)).converged


def test_iterations_run_out() -> None:
    result = lobpcg(CSR.from_scipy(poisson(20)), random(400, 2, seed=0), tol=1e-10, max_iterations=3)
    assert (result.converged, result.iterations, result.reason) == (False, 3, "max_iterations")
    with pytest.raises(ConvergenceError, match=r"lobpcg did not reach .* in 3 iterations \(max_iterations\)"):
        result.raise_if_failed()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["matrix", "preconditioner"])
def test_results_are_finite_after_a_breakdown(value: float, place: str) -> None:
    matrix = hermitian(30, 0, torch.float64)
    bad = torch.eye(30, dtype=torch.float64)
    bad[3, 3] = value
    options: dict[str, Any] = {"preconditioner": bad} if place == "preconditioner" else {}
    result = lobpcg(bad if place == "matrix" else matrix, random(30, 2, seed=0), tol=1e-9, **options)
    assert not result.converged
    assert result.reason.startswith("breakdown: ")
    assert result.vectors.isfinite().all()
    assert result.values.isfinite().all()


@pytest.mark.parametrize(
    ("x", "options", "error", "message"),
    [
        ([1.0], {}, TypeError, "x must be a torch tensor, got list"),
        (torch.ones(4), {}, ValueError, r"shape \(M, K\), got \(4,\)"),
        (torch.ones(4, 1).half(), {"matrix": torch.eye(4).half()}, TypeError, r"not in torch\.float16"),
        (torch.ones(3, 1), {}, ValueError, "for the 3 rows of x"),
        (torch.ones(12, 2), {"matrix": torch.eye(12)}, ValueError, "dependent vectors"),
        (torch.full((4, 1), float("nan")), {}, ValueError, "x must be finite"),
        (torch.ones(4, 5), {}, ValueError, "5 vectors but only 4 rows"),
        (torch.ones(4, 1), {"tol": -1.0}, ValueError, "tol must be finite and not negative"),
        (torch.ones(4, 1), {"max_iterations": -1}, ValueError, "max_iterations must not be negative"),
        (torch.ones(4, 1), {"constraints": torch.ones(4, 2)}, ValueError, "finite and independent"),
        (torch.ones(4, 1), {"constraints": torch.ones(3, 1)}, ValueError, r"\(4, L\) on cpu, got \(3, 1\)"),
        (torch.rand(4, 3), {"constraints": torch.eye(4)[:, :2]}, ValueError, "more vectors than rows"),
    ],
)
def test_operands_that_do_not_match(
    x: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lobpcg(**{"matrix": torch.eye(4), "x": x, **options})


@pytest.mark.parametrize("of_a", [-996, -600, 0, 600, 800])
@pytest.mark.parametrize("of_b", [-400, 0, 400])
def test_matrices_and_starts_of_any_size(of_a: int, of_b: int) -> None:
    """Powers of two change no bit of the eigenpairs."""
    dense = generators.poisson_2d(5).to_dense().double()
    start, weights = random(25, 3, seed=0), torch.diag(torch.linspace(1, 2, 25, dtype=torch.float64))
    options: dict[str, Any] = {"largest": False, "max_iterations": 60}
    expected = lobpcg(CSR.from_dense(dense), start, CSR.from_dense(weights), tol=1e-8, **options)
    matrix, b = times_power(dense, [of_a]), times_power(weights, [of_b])
    tolerance = scaled_number(1e-8, of_a - of_b // 2)
    for left, right in ((CSR.from_dense(matrix), CSR.from_dense(b)), (matrix.__matmul__, b.__matmul__)):
        for factor in (-1000, 0, 1000):
            found = lobpcg(left, times_power(start, [factor]), right, tol=tolerance, **options)
            fits = abs(of_a - of_b) < 1020
            assert found.converged == fits, found.reason
            assert all(one <= found.tolerance for one in found.true_residuals)
            if fits:
                scaled = times_power(found.values, [of_b - of_a])
                torch.testing.assert_close(scaled, expected.values, rtol=1e-9, atol=0)
