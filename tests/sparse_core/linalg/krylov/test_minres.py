"""Compare MINRES with scipy's and with dense least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import cg, minres, solve

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def hermitian(size: int, rank: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Eigenvalues of both signs between 1 and 4, and zeros."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, size, dtype=dtype, generator=generator)).Q
    values = 1 + 3 * torch.rand(size, generator=generator)
    values = values * torch.where(torch.rand(size, generator=generator) < 0.5, -1, 1)
    values[rank:] = 0
    full = (basis * values.to(dtype)) @ basis.mH
    return (full + full.mH) / 2


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(0, 99), st.sampled_from(DTYPES))
def test_indefinite_systems(size: int, seed: int, dtype: torch.dtype) -> None:
    matrix = hermitian(size, size, seed, dtype)
    b = torch.randn(size, 2, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    result = minres(CSR.from_dense(matrix), b, rtol=1e-4)
    assert result.converged
    assert bool((torch.linalg.vector_norm(b - matrix @ result.x, dim=0) <= 1.001e-4 * b.norm(dim=0)).all())


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_scale_of_the_matrix_does_not_matter(scale: float) -> None:
    matrix, b = hermitian(9, 9, 0, torch.float64), torch.ones(9, dtype=torch.float64)
    expected, found = minres(CSR.from_dense(matrix), b), minres(CSR.from_dense(scale * matrix), b)
    assert (found.reason, found.iterations) == (expected.reason, expected.iterations)
    singular = hermitian(9, 5, 0, torch.float64)
    expected, found = minres(CSR.from_dense(singular), b), minres(CSR.from_dense(scale * singular), b)
    assert expected.reason.startswith("least squares")
    assert (found.reason, found.iterations) == (expected.reason, expected.iterations)


@settings(max_examples=60)
@given(st.integers(2, 12), st.integers(0, 99), st.sampled_from(DTYPES), st.data())
def test_singular_systems_end_at_least_squares(
    size: int, seed: int, dtype: torch.dtype, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, size - 1))
    matrix = hermitian(size, rank, seed, dtype)
    b = torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    # The least residual is the part of b outside the range.
    wide = matrix.to(torch.complex128)
    least = torch.linalg.vector_norm(b - wide @ (torch.linalg.pinv(wide, rtol=1e-4) @ b.to(wide.dtype)))
    result = minres(CSR.from_dense(matrix), b, rtol=1e-6)
    # In single precision a little of the null space shows in A x before the solve stops.
    slack = 5e-2 if torch.finfo(dtype).eps > 1e-10 else 1e-5
    assert result.true_residual == pytest.approx(float(least), rel=slack, abs=1e-5)
    assert result.converged == (result.true_residual <= result.tolerance)
    assert result.x.isfinite().all()
    if not result.converged:
        assert result.reason.startswith(("least squares: ", "stagnation: "))


def shifted_line(size: int, shift: float) -> Any:
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(size, size))
    return scipy.sparse.csr_array(line - shift * scipy.sparse.eye_array(size))


@pytest.mark.parametrize("preconditioned", [False, True])
def test_as_many_iterations_as_scipy(preconditioned: bool, device: torch.device) -> None:
    matrix = shifted_line(200, 0.3)
    b = np.random.default_rng(0).standard_normal(200)
    scale = np.linspace(1, 2, 200)
    norms: list[float] = []
    scipy.sparse.linalg.minres(
        matrix,
        b,
        rtol=1e-12,
        callback=lambda x: norms.append(np.linalg.norm(b - matrix @ x)),
        M=scipy.sparse.diags_array(scale) if preconditioned else None,
    )
    weights = torch.from_numpy(scale).to(device)
    result = minres(
        CSR.from_scipy(matrix).to(device),
        torch.from_numpy(b).to(device),
        preconditioner=(lambda r: weights * r) if preconditioned else None,
    )
    assert result.converged
    needed = next(count for count, norm in enumerate(norms, 1) if norm <= result.tolerance)
    assert abs(result.iterations - needed) <= 1
    np.testing.assert_allclose(result.residuals[1:50], norms[:49], rtol=1e-6)


def test_the_residual_never_rises() -> None:
    matrix = CSR.from_scipy(shifted_line(100, 1.1))
    result = minres(matrix, torch.ones(100, dtype=torch.float64), rtol=1e-10)
    assert result.converged
    assert all(after <= before * (1 + 1e-12) for before, after in zip(*_pairs(result.residuals), strict=True))
    assert not cg(matrix, torch.ones(100, dtype=torch.float64)).converged


def _pairs(norms: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return norms[:-1], norms[1:]


def test_a_pure_neumann_problem_is_not_blown_up() -> None:
    """Without a check the constant in the solution grows without bound (here to 1e16)."""
    size = 300
    line = shifted_line(size, 0.0).tolil()
    line[0, 0] = line[-1, -1] = 1
    matrix = CSR.from_scipy(scipy.sparse.csr_array(line))
    b = torch.from_numpy(np.random.default_rng(0).standard_normal(size))
    result = minres(matrix, b, rtol=1e-8)
    assert result.reason.startswith("least squares: ")
    assert result.true_residual == pytest.approx(abs(float(b.mean())) * size**0.5, rel=1e-6)
    even = minres(matrix, b - b.mean(), rtol=1e-8)
    assert even.converged


def test_gradients_through_an_indefinite_solve() -> None:
    matrix = hermitian(6, 6, 0, torch.float64)
    b = torch.ones(6, dtype=torch.float64, requires_grad=True)
    stored = CSR.from_dense(matrix)
    values = stored.values.requires_grad_()
    x = solve(stored.with_values(values), b, method="minres", rtol=1e-12)
    full = matrix.clone().requires_grad_()
    expected = torch.linalg.solve(full, b)
    found = torch.autograd.grad(x.square().sum(), (values, b))
    wanted = torch.autograd.grad(expected.square().sum(), (full, b))
    torch.testing.assert_close(found[0], wanted[0].reshape(-1))
    torch.testing.assert_close(found[1], wanted[1])
