from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import splu
from torch import Tensor

from sparse_core.formats import COO, CSR
from sparse_core.linalg import triangular_solve
from sparse_core.linalg.triangular import vendor
from sparse_core.linalg.triangular.levels import level_schedule

SYSTEMS = list(product([True, False], repeat=3))
IMPLEMENTATIONS = ["reference", "vendor"]


def random(rows: int, seed: int, dtype: torch.dtype = torch.float64, density: float = 0.2) -> CSR:
    """Both triangles stored, some rows with their diagonal alone, one row dense."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, rows, generator=generator, dtype=dtype) / max(1, rows) ** 0.5
    dense = dense * (torch.rand(rows, rows, generator=generator) < density)
    dense[1::5] = 0
    dense[rows // 2 : rows // 2 + 1] = 0.1
    dense.fill_diagonal_(0)
    return CSR.from_dense(dense + 2 * torch.eye(rows, dtype=dtype))


def solve_dense(matrix: CSR, b: Tensor, lower: bool, unit: bool, transpose: bool) -> np.ndarray:
    return scipy.linalg.solve_triangular(
        matrix.to_dense().numpy(), b.numpy(), lower=lower, unit_diagonal=unit, trans=int(transpose)
    )


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize(("lower", "unit", "transpose"), SYSTEMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_equals_lapack(impl: Any, lower: bool, unit: bool, transpose: bool, dtype: torch.dtype) -> None:
    matrix = random(40, 0, dtype)
    for shape in [(40,), (40, 1), (40, 5), (40, 0)]:
        b = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
        x = triangular_solve(matrix, b, lower=lower, unit_diagonal=unit, transpose=transpose, impl=impl)
        expected = torch.from_numpy(solve_dense(matrix, b, lower, unit, transpose).reshape(shape)).to(dtype)
        torch.testing.assert_close(x, expected)


@settings(max_examples=40)
@given(
    rows=st.integers(1, 12),
    places=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=60),
    lower=st.booleans(),
    transpose=st.booleans(),
)
def test_random_patterns(rows: int, places: list[tuple[int, int]], lower: bool, transpose: bool) -> None:
    dense = 3 * torch.eye(rows, dtype=torch.float64)
    for row, col in places:
        if row != col and row < rows and col < rows:
            dense[row, col] = 1 / (1 + row + col)
    matrix, b = CSR.from_dense(dense), torch.arange(1, rows + 1).double()
    expected = solve_dense(matrix, b, lower, False, transpose)
    for impl in IMPLEMENTATIONS:
        x = triangular_solve(matrix, b, lower=lower, transpose=transpose, impl=impl)  # type: ignore[arg-type]
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    matrix = random(30, 2, torch.float32).to(dtype)
    b = torch.randn(30, dtype=torch.float32, generator=torch.Generator().manual_seed(0)).to(dtype)
    for impl in IMPLEMENTATIONS:
        x = triangular_solve(matrix, b, impl=impl)  # type: ignore[arg-type]
        exact = triangular_solve(matrix.to(torch.float32), b.to(torch.float32))
        assert x.dtype == dtype
        torch.testing.assert_close(x, exact.to(dtype))


def test_dtypes_promote() -> None:
    matrix = random(8, 3, torch.float32)
    assert triangular_solve(matrix, torch.ones(8, dtype=torch.float64)).dtype == torch.float64
    assert triangular_solve(matrix, torch.ones(8, dtype=torch.complex64)).dtype == torch.complex64
    assert triangular_solve(matrix, torch.ones(8, dtype=torch.float16)).dtype == torch.float32


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_no_row_and_one_row(impl: Any) -> None:
    empty = CSR.from_dense(torch.zeros(0, 0))
    assert triangular_solve(empty, torch.zeros(0), impl=impl).shape == (0,)
    assert triangular_solve(empty, torch.zeros(0, 3), impl=impl).shape == (0, 3)
    one = CSR.from_dense(torch.full((1, 1), 4.0))
    assert triangular_solve(one, torch.ones(1), impl=impl).tolist() == [0.25]
    assert triangular_solve(one, torch.ones(1), unit_diagonal=True, impl=impl).tolist() == [1.0]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_nan_reaches_exactly_what_depends_on_it(impl: Any) -> None:
    dense = torch.eye(4, dtype=torch.float64)
    dense[2, 1] = 1
    b = torch.tensor([1.0, float("nan"), 1.0, 1.0], dtype=torch.float64)
    x = triangular_solve(CSR.from_dense(dense), b, impl=impl)
    assert x.isnan().tolist() == [False, True, True, False]


@settings(max_examples=25)
@given(rows=st.integers(1, 20), seed=st.integers(0, 2**20), density=st.floats(0, 0.6), lower=st.booleans())
def test_superlu_spreads_nan_no_further_than_the_reference(
    rows: int, seed: int, density: float, lower: bool
) -> None:
    matrix = random(rows, seed, density=density)
    b = torch.ones(rows, dtype=torch.float64)
    b[seed % rows] = float("nan")
    exact = triangular_solve(matrix, b, lower=lower, impl="reference")
    torch.testing.assert_close(triangular_solve(matrix, b, lower=lower, impl="vendor"), exact, equal_nan=True)
    values = matrix.values.clone()
    values[seed % len(values)] = float("nan")
    changed, ones = matrix.with_values(values), torch.ones(rows, dtype=torch.float64)
    exact = triangular_solve(changed, ones, lower=lower, impl="reference")
    found = triangular_solve(changed, ones, lower=lower, impl="vendor")
    torch.testing.assert_close(found, exact, equal_nan=True)


def test_superlu_prepares_a_triangle_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []
    monkeypatch.setattr(vendor, "splu", lambda *a, **k: prepared.append(0) or splu(*a, **k))
    monkeypatch.setattr(vendor, "spsolve_triangular", lambda *_, **__: pytest.fail("converted again"))
    matrix, b = random(50, 8), torch.ones(50, 3, dtype=torch.float64)
    first = triangular_solve(matrix, b)
    assert first.is_contiguous()
    assert torch.equal(triangular_solve(matrix, b), first)
    assert len(prepared) == 1
    triangular_solve(matrix.with_values(2 * matrix.values), b)
    triangular_solve(matrix, b, transpose=True)
    assert len(prepared) == 3


@pytest.mark.parametrize(("lower", "unit", "transpose"), SYSTEMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(lower: bool, unit: bool, transpose: bool, dtype: torch.dtype) -> None:
    matrix = random(7, 4, dtype, density=0.5)
    for shape in [(7,), (7, 2)]:
        b = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(3), requires_grad=True)
        values = matrix.values.clone().requires_grad_()

        def solve(values: Tensor, b: Tensor) -> Tensor:
            return triangular_solve(
                matrix.with_values(values), b, lower=lower, unit_diagonal=unit, transpose=transpose
            )

        assert torch.autograd.gradcheck(solve, (values, b))


def test_gradient_of_real_values_of_a_complex_solve_is_real() -> None:
    matrix = random(5, 4)
    values = matrix.values.clone().requires_grad_()
    b = torch.randn(5, dtype=torch.complex128, generator=torch.Generator().manual_seed(3))
    triangular_solve(matrix.with_values(values), b).abs().sum().backward()
    assert values.grad is not None
    assert values.grad.dtype == torch.float64


def test_results_repeat_bit_for_bit() -> None:
    matrix, b = random(200, 5), torch.randn(200, 3, dtype=torch.float64)
    first = triangular_solve(matrix, b, impl="reference")
    assert all(torch.equal(triangular_solve(matrix, b, impl="reference"), first) for _ in range(3))


def test_the_schedule_is_kept_for_new_values(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, b = random(20, 7), torch.ones(20, dtype=torch.float64)
    triangular_solve(matrix, b, impl="reference")
    monkeypatch.setattr("sparse_core.linalg.triangular.common.level_schedule", None)
    doubled = matrix.with_values(2 * matrix.values)
    found = triangular_solve(doubled, b, impl="reference")
    np.testing.assert_allclose(found.numpy(), solve_dense(doubled, b, True, False, False), rtol=1e-12)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_values_changed_in_place_are_seen(impl: Any) -> None:
    matrix, b = CSR.from_dense(torch.eye(3)), torch.ones(3)
    triangular_solve(matrix, b, impl=impl)
    matrix.values.mul_(2)
    assert triangular_solve(matrix, b, impl=impl).tolist() == [0.5] * 3
    matrix.values[1] = 0
    with pytest.raises(ValueError, match="diagonal value of row 1 is zero"):
        triangular_solve(matrix, b, impl=impl)


def test_levels_of_a_grid_and_of_a_long_chain() -> None:
    # A 5-point grid has a level for each antidiagonal.
    line = torch.diag(torch.ones(4), -1)
    grid = torch.kron(line, torch.eye(5)) + torch.kron(torch.eye(5), line)
    pattern = CSR.from_dense(grid)
    levels = level_schedule(pattern.row_ptr, pattern.col)
    sizes = torch.tensor(levels.bounds).diff().tolist()
    assert sizes == [1, 2, 3, 4, 5, 4, 3, 2, 1]
    # Deeper than the limit of level-by-level peeling.
    rows = 5000
    ptr = torch.cat([torch.zeros(1), torch.arange(rows)]).long()
    chain = level_schedule(ptr, torch.arange(rows - 1))
    assert len(chain) == rows
    assert torch.equal(chain.order, torch.arange(rows))
    backwards = level_schedule(
        torch.cat([torch.arange(rows), torch.tensor([rows - 1])]), torch.arange(1, rows), reverse=True
    )
    assert torch.equal(backwards.order, torch.arange(rows).flip(0))


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_missing_and_zero_diagonals_name_the_row(impl: Any) -> None:
    dense = torch.eye(5)
    dense[3, 3] = 0
    b = torch.ones(5)
    with pytest.raises(ValueError, match=r"no diagonal entry in row 3 \(1 such rows\)"):
        triangular_solve(CSR.from_dense(dense), b, impl=impl)
    stored = CSR.from_dense(torch.eye(5))
    stored.values[2] = 0
    with pytest.raises(ValueError, match="diagonal value of row 2 is zero"):
        triangular_solve(stored, b, impl=impl)
    assert triangular_solve(stored, b, unit_diagonal=True, impl=impl).tolist() == [1.0] * 5


def test_wrong_arguments() -> None:
    matrix = CSR.from_dense(torch.eye(3))
    with pytest.raises(TypeError, match="must be CSR, got COO"):
        triangular_solve(matrix.to(COO), torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be square, got 2 x 3"):
        triangular_solve(CSR.from_dense(torch.ones(2, 3)), torch.ones(2))
    with pytest.raises(ValueError, match=r"\(3,\) or \(3, N\), got \(4,\)"):
        triangular_solve(matrix, torch.ones(4))
    with pytest.raises(ValueError, match=r"got \(3, 1, 1\)"):
        triangular_solve(matrix, torch.ones(3, 1, 1))
    with pytest.raises(TypeError, match=r"floating point or complex, got torch\.int64"):
        triangular_solve(matrix, torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="b is on meta"):
        triangular_solve(matrix, torch.ones(3, device="meta"))
    with pytest.raises(ValueError, match="impl must be one of"):
        triangular_solve(matrix, torch.ones(3), impl="cuda")  # type: ignore[arg-type]
