from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import spsolve
from torch import Tensor

from sparse_core.formats import COO, CSR
from sparse_core.linalg import Preconditioner, cholesky, lu


def unsymmetric(size: int, seed: int, dtype: Any = np.float64) -> Any:
    """Random, with zeros on the diagonal, so that rows must be swapped."""
    generator = np.random.default_rng(seed)
    dense = generator.standard_normal((size, size)) * (generator.random((size, size)) < 0.2)
    dense += 3 * np.eye(size)[generator.permutation(size)]
    if np.issubdtype(dtype, np.complexfloating):
        dense = dense * (1 + 0.5j)
    return scipy.sparse.csr_array(dense.astype(dtype))


def poisson(side: int) -> Any:
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    return scipy.sparse.csr_array(scipy.sparse.kronsum(line, line))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("columns", [None, 1, 4])
def test_lu_equals_scipy_and_is_reused(dtype: Any, columns: int | None) -> None:
    array = unsymmetric(60, 0, dtype)
    shape = (60,) if columns is None else (60, columns)
    b = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    tolerance = 1e-3 if dtype in (np.float32, np.complex64) else 1e-9
    factors = lu(CSR.from_scipy(array))
    assert isinstance(factors, Preconditioner)
    other = array.copy()
    other.data = other.data * np.linspace(1, 2, other.nnz).astype(other.data.real.dtype)
    again = factors.refactor(CSR.from_scipy(other))
    assert np.array_equal(again.column_order, factors.column_order)
    assert not np.array_equal(factors.column_order, np.arange(60))
    twice = again.refactor(CSR.from_scipy(array))
    for found, matrix in ((factors, array), (again, other), (twice, array)):
        x = found.solve(torch.from_numpy(b))
        assert x.shape == shape
        assert x.numpy().dtype == dtype
        exact = spsolve(matrix.astype(np.complex128).tocsc(), b.astype(np.complex128))
        np.testing.assert_allclose(x.numpy(), exact.reshape(shape), atol=tolerance * abs(exact).max())


def test_dtypes_promote() -> None:
    factors = lu(CSR.from_scipy(poisson(3)))
    b = torch.randn(9, dtype=torch.complex128)
    x = factors.solve(b)
    np.testing.assert_allclose(poisson(3) @ x.numpy(), b.numpy(), atol=1e-12)
    assert factors.solve(torch.ones(9)).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cholesky_solves_and_is_reused(dtype: torch.dtype) -> None:
    matrix = CSR.from_scipy(poisson(7)).to(dtype)
    factors = cholesky(matrix)
    for shape in [(49,), (49, 3), (49, 0)]:
        b = torch.randn(shape, dtype=dtype)
        x = factors.solve(b)
        assert x.dtype == dtype
        torch.testing.assert_close(matrix.to_dense() @ x, b, rtol=1e-4, atol=1e-5)
    again = factors.refactor(matrix.with_values(4 * matrix.values))
    b = torch.randn(49, dtype=dtype)
    torch.testing.assert_close(again(b), factors(b) / 4, rtol=1e-4, atol=1e-5)


def test_cholesky_refuses_what_is_not_positive_definite() -> None:
    indefinite = poisson(5) - 3 * scipy.sparse.eye_array(25)
    with pytest.raises(ValueError, match=r"not positive definite: the pivot of row \d+ is not positive"):
        cholesky(CSR.from_scipy(indefinite))
    # A diagonal names its row exactly; a zero on it makes SuperLU swap rows.
    diagonal = torch.eye(4)
    diagonal[2, 2] = -1
    with pytest.raises(ValueError, match="the pivot of row 2 is not positive"):
        cholesky(CSR.from_dense(diagonal))
    swapped = torch.tensor([[0.0, 1], [1, 0]])
    with pytest.raises(ValueError, match="not positive definite"):
        cholesky(CSR.from_dense(swapped))
    with pytest.raises(ValueError, match=r"not symmetric: entries \(0, 1\) and \(1, 0\) differ"):
        cholesky(CSR.from_dense(torch.tensor([[2.0, 1], [0, 2]])))


def test_no_row_and_one_row() -> None:
    one, empty = CSR.from_dense(torch.full((1, 1), 4.0)), CSR.from_dense(torch.zeros(0, 0))
    for factorise in (lu, cholesky):
        assert factorise(one).solve(torch.ones(1)).tolist() == [0.25]
        assert factorise(empty).solve(torch.zeros(0, 2)).shape == (0, 2)


def test_singular_matrices_and_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="cannot factorise the matrix: Factor is exactly singular"):
        lu(CSR.from_dense(torch.ones(3, 3)))
    matrix = CSR.from_dense(torch.eye(3))
    for factorise in (lu, cholesky):
        with pytest.raises(TypeError, match="must be CSR, got COO"):
            factorise(matrix.to(COO))  # type: ignore[operator]
        with pytest.raises(ValueError, match="must be square"):
            factorise(CSR.from_dense(torch.ones(2, 3)))
        with pytest.raises(TypeError, match=r"cannot factorise values of torch.float16"):
            factorise(matrix.to(torch.float16))
        with pytest.raises(ValueError, match=r"\(3,\) or \(3, N\), got \(4,\)"):
            factorise(matrix).solve(torch.ones(4))
        with pytest.raises(ValueError, match="another structure"):
            factorise(matrix).refactor(CSR.from_dense(torch.ones(3, 3)))
    with pytest.raises(TypeError, match="cholesky supports real values"):
        cholesky(matrix.to(torch.complex64))


@pytest.mark.gpu
def test_tensors_on_cuda_travel_there_and_back(cuda: torch.device) -> None:
    matrix = CSR.from_scipy(poisson(6)).to(cuda)
    b: Tensor = torch.randn(36, dtype=torch.float64, device=cuda)
    for factorise in (lu, cholesky):
        x = factorise(matrix).solve(b)
        assert x.device == b.device
        np.testing.assert_allclose(poisson(6) @ x.cpu().numpy(), b.cpu().numpy(), atol=1e-10)


def test_other_operands_are_refused_with_the_way_out() -> None:
    matrix = CSR.from_dense(2 * torch.eye(3))
    for given, how in (
        (matrix.to(COO), r"matrix\.to\(CSR\)"),
        (matrix.to_torch(), "CSR.from_torch"),
        (matrix.to_scipy(), "CSR.from_scipy"),
    ):
        with pytest.raises(TypeError, match=f"matrix must be CSR, got .*: convert it with {how}"):
            lu(given)
    for factors in (lu(matrix), cholesky(matrix)):
        with pytest.raises(TypeError, match="b must be a torch tensor, got ndarray: convert it with torch"):
            factors.solve(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="For a singular matrix use minres or gmres"):
        lu(CSR.from_dense(torch.zeros(2, 2)))
