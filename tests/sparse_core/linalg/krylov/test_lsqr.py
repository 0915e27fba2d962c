"""LSQR against numpy's least squares and scipy's lsqr."""

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

from sparse_core.formats import COO, CSR
from sparse_core.linalg import lsqr

NAN = float("nan")


def problem(rows: int, columns: int, seed: int, dtype: Any) -> tuple[Any, Any]:
    """Half of the entries, of any rank; every other right-hand side lies in the range."""
    generator = np.random.default_rng(seed)
    full = generator.standard_normal((rows, columns)) * (generator.random((rows, columns)) < 0.5)
    if np.issubdtype(dtype, np.complexfloating):
        full = full + 1j * generator.standard_normal((rows, columns)) * (full != 0)
    b = generator.standard_normal(rows)
    if seed % 2 and columns:
        b = full @ generator.standard_normal(columns)
    return full.astype(dtype), b.astype(full.dtype).astype(dtype)


@settings(max_examples=120)
@given(
    st.integers(0, 10),
    st.integers(0, 10),
    st.integers(0, 999),
    st.sampled_from([np.float32, np.float64, np.complex128]),
    st.sampled_from([0.0, 0.3]),
)
def test_solutions_of_least_norm(rows: int, columns: int, seed: int, dtype: Any, damp: float) -> None:
    full, b = problem(rows, columns, seed, dtype)
    tolerance = 1e-4 if dtype is np.float32 else 1e-11
    result = lsqr(
        CSR.from_dense(torch.from_numpy(full)),
        torch.from_numpy(b),
        damp=damp,
        atol=tolerance,
        btol=tolerance,
        conlim=0,
        max_iterations=200,
    )
    assert result.converged
    stacked = np.vstack([full, damp * np.eye(columns)]).astype(np.complex128)
    expected = np.linalg.pinv(stacked, rcond=1e-6) @ np.concatenate([b, np.zeros(columns)])
    error = np.linalg.norm(stacked @ (result.x.numpy() - expected)) if rows and columns else 0
    assert error <= 100 * tolerance * (np.linalg.norm(full) + 1) * (np.linalg.norm(expected) + 1)
    assert result.true_residual == pytest.approx(float(np.linalg.norm(b - full @ result.x.numpy())), abs=1e-5)


def test_as_many_iterations_as_scipy(device: torch.device) -> None:
    array = scipy.sparse.random_array((120, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    b = np.random.default_rng(1).standard_normal(120)
    x, _stop, iterations, norm = scipy.sparse.linalg.lsqr(array, b)[:4]
    result = lsqr(CSR.from_scipy(array).to(device), torch.from_numpy(b).to(device))
    assert result.reason == "converged: least squares"
    assert abs(result.iterations - iterations) <= 1
    assert result.true_residual == pytest.approx(norm, rel=1e-9)
    np.testing.assert_allclose(result.x.cpu().numpy(), x, atol=1e-5)
    assert len(result.residuals) == result.iterations + 1


def test_start_and_damping_mean_what_they_mean_in_scipy() -> None:
    full, b = problem(9, 6, 3, np.float64)
    x0 = np.linspace(-1, 1, 6)
    for damp in (0.0, 0.5):
        options = {"damp": damp, "atol": 1e-13, "btol": 1e-13, "conlim": 0}
        expected = scipy.sparse.linalg.lsqr(full, b, x0=x0, **options)[0]
        found = lsqr(torch.from_numpy(full), torch.from_numpy(b), torch.from_numpy(x0), **options)
        np.testing.assert_allclose(found.x.numpy(), expected, atol=1e-9)


def test_columns_are_solved_on_their_own() -> None:
    full, _ = problem(8, 5, 0, np.float64)
    b = torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    b[2, 1] = NAN
    result = lsqr(COO.from_dense(torch.from_numpy(full)), b)
    assert [column.converged for column in result.columns] == [True, False, True]
    assert result.x.shape == (5, 3)
    assert result.x.isfinite().all()
    assert result.reason == "breakdown: b is not finite, or its norm overflows (column 1)"
    assert torch.equal(result.x[:, 2], lsqr(COO.from_dense(torch.from_numpy(full)), b[:, 2]).x)
    assert lsqr(torch.ones(3, 2), torch.ones(3, 0)).x.shape == (2, 0)


def test_a_function_needs_its_adjoint() -> None:
    full = torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    b = torch.ones(6, dtype=torch.float64)
    found = lsqr(lambda x: full @ x, b, adjoint=lambda y: full.mT @ y, columns=4)
    torch.testing.assert_close(found.x, lsqr(full, b).x)
    with pytest.raises(TypeError, match="pass adjoint"):
        lsqr(lambda x: full @ x, b)


@pytest.mark.parametrize("place", ["matrix", "b", "x0"])
@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_numbers_that_are_not_finite(place: str, value: float) -> None:
    operands: dict[str, Tensor] = {"matrix": torch.eye(3), "b": torch.ones(3), "x0": torch.zeros(3)}
    operands[place][(0,) * operands[place].ndim] = value
    result = lsqr(**operands)
    assert not result.converged
    assert result.reason.startswith("breakdown: ")
    assert result.x.isfinite().all()


def test_reasons_to_stop() -> None:
    full, b = (torch.from_numpy(part) for part in problem(30, 20, 0, np.float64))
    few = lsqr(full, b, max_iterations=3)
    assert (few.converged, few.iterations, few.reason) == (False, 3, "max_iterations")
    stopped = lsqr(full, b, callback=lambda iteration, _x, _norm: iteration == 2)
    assert (stopped.iterations, stopped.reason) == (2, "stopped by callback")
    steep = torch.diag(torch.tensor([1.0, 1e3, 1e6], dtype=torch.float64))
    bad = lsqr(steep, torch.ones(3).double(), atol=0, btol=0, conlim=1e5)
    assert bad.reason.startswith("breakdown: the condition number of A exceeds conlim = 1e+05")
    nothing = lsqr(torch.zeros(3, 2), torch.ones(3))
    assert (nothing.reason, nothing.x.tolist()) == ("converged: least squares", [0, 0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"b": torch.ones(2)}, ValueError, r"b must have shape \(3,\) or \(3, N\), got \(2,\)"),
        ({"b": torch.ones(3).half(), "matrix": torch.eye(3).half()}, TypeError, r"not in torch\.float16"),
        ({"b": [1.0, 2.0, 3.0]}, TypeError, "b must be a torch tensor, got list"),
        ({"x0": torch.ones(2)}, ValueError, r"x0 must be \(3,\) on cpu; got \(2,\)"),
        ({"damp": -1.0}, ValueError, "damp must be finite and not negative"),
        ({"atol": NAN}, ValueError, "atol must be finite"),
        ({"max_iterations": -1}, ValueError, "max_iterations must not be negative"),
        ({"matrix": "A"}, TypeError, "matrix must be a SparseMatrix, a torch tensor or a function, got str"),
        ({"matrix": torch.ones(3)}, ValueError, r"two dimensions, got shape \(3,\)"),
    ],
)
def test_operands_that_do_not_match(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lsqr(**{"matrix": torch.eye(3), "b": torch.ones(3), **options})
