from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from sparse_core.formats import COO, CSR
from sparse_core.linalg import Preconditioner, sparse_approximate_inverse


def poisson(side: int) -> Any:
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    return scipy.sparse.csr_array(scipy.sparse.kronsum(line, line))


def random(size: int, seed: int, dtype: Any = np.float64) -> Any:
    """Unsymmetric, with one dense row and one with its diagonal alone."""
    generator = np.random.default_rng(seed)
    dense = generator.standard_normal((size, size)) * (generator.random((size, size)) < 0.15)
    dense[1], dense[2] = 0, 0.2
    dense = dense + 4 * np.eye(size)
    return scipy.sparse.csr_array((dense * (1 + 0.3j) if dtype == np.complex128 else dense).astype(dtype))


def least_squares_rows(dense: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """Row by row minimiser of ``|M A - I|`` on the pattern."""
    result = np.zeros_like(dense)
    for row in range(len(dense)):
        chosen = np.flatnonzero(pattern[row])
        unit = np.eye(len(dense))[row]
        result[row, chosen] = np.linalg.lstsq(dense[chosen].T, unit, rcond=None)[0]
    return result


@pytest.mark.parametrize("power", ["matrix", 1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_rows_are_least_squares_solutions(power: Any, dtype: Any) -> None:
    array = random(25, 0, dtype)
    inverse = sparse_approximate_inverse(CSR.from_scipy(array), pattern=power)
    ones = (abs(array) > 0).astype(float)
    pattern = (ones @ ones if power == 2 else ones).toarray()
    np.testing.assert_allclose(
        inverse.factors[0].to_dense().numpy(), least_squares_rows(array.toarray(), pattern), atol=1e-12
    )
    inverse.factors[0].validate()


def test_a_wider_pattern_is_closer_to_the_inverse() -> None:
    array = poisson(8)
    distances = []
    for power in (1, 2, 3):
        inverse = sparse_approximate_inverse(CSR.from_scipy(array), pattern=power)
        product = inverse.solve(torch.from_numpy(array.toarray()))
        distances.append(float((product - torch.eye(64)).norm()))
    assert distances[0] > 1.2 * distances[1] > 1.4 * distances[2]


@pytest.mark.parametrize("power", [1, 2])
def test_the_factored_inverse_is_positive_definite_with_a_unit_diagonal(power: int) -> None:
    array = poisson(7)
    inverse = sparse_approximate_inverse(CSR.from_scipy(array), pattern=power, symmetric=True)
    mirror, factor = (part.to_dense().numpy() for part in inverse.factors)
    np.testing.assert_array_equal(mirror, factor.T)
    assert np.triu(factor, 1).max() == 0
    assert np.linalg.eigvalsh(mirror @ factor).min() > 0
    # Kolotilina and Yeremin: the factor makes G A G^T a matrix with ones on its diagonal.
    np.testing.assert_allclose(np.diag(factor @ array.toarray() @ factor.T), 1, rtol=1e-12)


def test_the_full_pattern_gives_the_inverse() -> None:
    dense = poisson(3).toarray()
    matrix = CSR.from_scipy(scipy.sparse.csr_array(dense))
    for symmetric in (False, True):
        inverse = sparse_approximate_inverse(matrix, pattern=4, symmetric=symmetric)
        np.testing.assert_allclose(inverse(torch.eye(9).double()).numpy(), np.linalg.inv(dense), atol=1e-12)


def test_no_row_one_row_and_float32() -> None:
    for symmetric in (False, True):
        empty = sparse_approximate_inverse(CSR.from_dense(torch.zeros(0, 0)), symmetric=symmetric)
        assert empty.solve(torch.zeros(0)).shape == (0,)
        one = sparse_approximate_inverse(CSR.from_dense(torch.full((1, 1), 4.0)), symmetric=symmetric)
        torch.testing.assert_close(one.solve(torch.ones(1)), torch.tensor([0.25]))
        assert isinstance(one, Preconditioner)


def test_wrong_arguments() -> None:
    matrix = CSR.from_dense(torch.eye(3))
    for pattern in (0, "cube", 1.5):
        with pytest.raises(ValueError, match="pattern must be 'matrix' or a power"):
            sparse_approximate_inverse(matrix, pattern=pattern)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be CSR, got COO"):
        sparse_approximate_inverse(matrix.to(COO))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="symmetric=True supports real"):
        sparse_approximate_inverse(matrix.to(torch.complex64), symmetric=True)
    with pytest.raises(ValueError, match="not positive definite in the entries that row 2"):
        sparse_approximate_inverse(CSR.from_dense(torch.diag(torch.tensor([1.0, 1, -1]))), symmetric=True)
    wide = torch.eye(1100)
    wide[0] = 1
    with pytest.raises(ValueError, match="1100 entries, more than the limit of 1024"):
        sparse_approximate_inverse(CSR.from_dense(wide))


@pytest.mark.gpu
@pytest.mark.parametrize("symmetric", [False, True])
def test_cuda_equals_cpu(cuda: torch.device, symmetric: bool) -> None:
    matrix = CSR.from_scipy(poisson(12))
    here = sparse_approximate_inverse(matrix, symmetric=symmetric)
    there = sparse_approximate_inverse(matrix.to(cuda), symmetric=symmetric)
    b = torch.randn(144, dtype=torch.float64)
    torch.testing.assert_close(there.solve(b.to(cuda)).cpu(), here.solve(b), rtol=1e-10, atol=1e-10)
