from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.errors import FactorisationWarning
from sparse_core.formats import COO, CSR, generators
from sparse_core.linalg import Preconditioner, cholesky, gauss_seidel, ic0, ilu0, iluk, jacobi, lu
from sparse_core.linalg.triangular.common import System, triangular_plan

REAL_EXAMPLES = (
    "airfoil",
    "bar",
    "knot",
    "local_disc_galerkin_diffusion",
    "recirc_flow",
    "unit_cube",
    "unit_square",
)


def example(name: str) -> Any:
    """One of pyamg's shipped matrices."""
    gallery = pytest.importorskip("pyamg.gallery")
    array = scipy.sparse.csr_matrix(gallery.load_example(name)["A"])
    array.sort_indices()
    return array


def poisson(*shape: int) -> Any:
    gallery = pytest.importorskip("pyamg.gallery")
    return scipy.sparse.csr_matrix(gallery.poisson(shape, format="csr"))


def dense_iluk(dense: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Row by row ILU(k) with levels of fill, as in Saad's algorithm 10.6, on dense arrays."""
    size = len(dense)
    work = dense.copy()
    levels = np.where((dense != 0) | np.eye(size, dtype=bool), 0, 10**6)
    for i in range(size):
        for k in range(i):
            if levels[i, k] > level:
                continue
            work[i, k] /= work[k, k]
            for j in range(k + 1, size):
                if levels[k, j] <= level:
                    work[i, j] -= work[i, k] * work[k, j]
                    levels[i, j] = min(levels[i, j], levels[i, k] + levels[k, j] + 1)
        work[i][levels[i] > level] = 0
    return np.tril(work, -1) + np.eye(size), np.triu(work)


def random_dense(size: int, seed: int, density: float = 0.15) -> np.ndarray:
    generator = np.random.default_rng(seed)
    dense = generator.standard_normal((size, size)) * (generator.random((size, size)) < density)
    dense[size // 3] = 0.1 * generator.standard_normal(size)
    np.fill_diagonal(dense, 4 + generator.random(size))
    return dense


@pytest.mark.parametrize("name", REAL_EXAMPLES)
def test_ilu0_equals_ilupp_on_shipped_matrices(name: str) -> None:
    ilupp = pytest.importorskip("ilupp")
    array = example(name)
    factors = ilu0(CSR.from_scipy(array))
    lower, upper = ilupp.ilu0(array)
    scale = abs(upper).max()
    assert abs(factors.lower.to_scipy() - lower).max() < 1e-10
    assert abs(factors.upper.to_scipy() - upper).max() < 1e-10 * scale
    factors.lower.validate()
    factors.upper.validate()


@pytest.mark.parametrize("name", [name for name in REAL_EXAMPLES if name != "recirc_flow"])
def test_ic0_equals_ilupp_on_shipped_matrices(name: str) -> None:
    ilupp = pytest.importorskip("ilupp")
    array = example(name)
    factors = ic0(CSR.from_scipy(array))
    assert factors.shift == 0
    assert abs(factors.lower.to_scipy() - ilupp.ichol0(array)).max() < 1e-10
    factors.lower.validate()


def test_ilu0_of_a_complex_matrix() -> None:
    array = example("helmholtz_2D")[:600, :600]
    factors = ilu0(CSR.from_scipy(array))
    # ILU(0) reproduces the matrix where the matrix has an entry.
    product = (factors.lower.to_scipy() @ factors.upper.to_scipy()).tocsr()
    pattern = (array != 0).astype(float)
    assert abs(product.multiply(pattern) - array).max() < 1e-12 * abs(array).max()


@settings(max_examples=30)
@given(
    size=st.integers(1, 10),
    places=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40),
    level=st.integers(0, 3),
)
def test_iluk_of_random_patterns(size: int, places: list[tuple[int, int]], level: int) -> None:
    dense = 8 * np.eye(size)
    for row, col in places:
        if row != col and row < size and col < size:
            dense[row, col] = 1 / (1 + row + 2 * col)
    lower, upper = dense_iluk(dense, level)
    factors = iluk(CSR.from_dense(torch.from_numpy(dense)), level)
    np.testing.assert_allclose(factors.lower.to_dense().numpy(), lower, atol=1e-13)
    np.testing.assert_allclose(factors.upper.to_dense().numpy(), upper, atol=1e-13)


def test_enough_fill_is_an_exact_factorisation() -> None:
    array = poisson(6, 5)
    matrix, b = CSR.from_scipy(array), torch.arange(30, dtype=torch.float64)
    x = iluk(matrix, 40).solve(b)
    np.testing.assert_allclose(array @ x.numpy(), b.numpy(), atol=1e-10)
    sides = iluk(matrix, 40).solve(torch.stack([b, 2 * b], dim=1))
    torch.testing.assert_close(sides, torch.stack([x, 2 * x], dim=1))


@pytest.mark.parametrize("factorise", [ilu0, ic0])
def test_multicolour_order_gives_the_factors_of_the_reordered_matrix(factorise: Any) -> None:
    array = example("unit_square")
    array = ((array + array.T) / 2).tocsr()
    factors = factorise(CSR.from_scipy(array), reorder="multicolour")
    order = factors.permutation.numpy()
    plain = factorise(CSR.from_scipy(array[order][:, order].tocsr()))
    torch.testing.assert_close(factors.lower.to_dense(), plain.lower.to_dense(), rtol=0, atol=1e-13)
    b = torch.randn(len(order), dtype=torch.float64)
    expected = torch.empty_like(b)
    expected[factors.permutation] = plain.solve(b[factors.permutation])
    torch.testing.assert_close(factors.solve(b), expected)
    # A triangular solve takes a level a colour.
    plan = triangular_plan(factors.lower, System(lower=True, unit_diagonal=True, transpose=False))
    assert len(plan.levels) <= factors.report.colours < len(order) / 4


@pytest.mark.parametrize("factorise", [ilu0, ic0, lambda matrix: iluk(matrix, 2)])
@pytest.mark.parametrize("reorder", [None, "multicolour"])
def test_refactor_reuses_the_schedule(factorise: Any, reorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = CSR.from_scipy(poisson(7, 6))
    factors = factorise(matrix) if reorder is None else ilu0(matrix, reorder=reorder)
    other = CSR.from_scipy(3 * poisson(7, 6))
    monkeypatch.setattr("sparse_core.linalg.factorisation.elimination.level_schedule", None)
    again = factors.refactor(other)
    b = torch.ones(42, dtype=torch.float64)
    torch.testing.assert_close(again.solve(b), factors.solve(b) / 3)
    with pytest.raises(ValueError, match="another structure"):
        factors.refactor(CSR.from_scipy(poisson(42)))
    moved = CSR(matrix.row_ptr, matrix.col.flip(0), matrix.values, matrix.shape, validate=False)
    with pytest.raises(ValueError, match="col differs"):
        factors.refactor(moved)


@pytest.mark.parametrize("factorise", [ilu0, ic0, lambda matrix: ilu0(matrix, reorder="multicolour")])
def test_no_row_and_one_row(factorise: Any) -> None:
    empty = factorise(CSR.from_dense(torch.zeros(0, 0)))
    assert empty.solve(torch.zeros(0)).shape == (0,)
    one = factorise(CSR.from_dense(torch.full((1, 1), 4.0)))
    assert one(torch.ones(1)).tolist() == [0.25]
    assert isinstance(one, Preconditioner)
    assert one.shape == (1, 1)


def test_float32_stays_float32() -> None:
    matrix = CSR.from_scipy(poisson(5, 5)).to(torch.float32)
    for factors in (ilu0(matrix), ic0(matrix)):
        assert factors.lower.dtype == torch.float32
        assert factors.solve(torch.ones(25)).dtype == torch.float32


def test_half_precision_is_refused() -> None:
    matrix = CSR.from_dense(torch.eye(3)).to(torch.float16)
    for factorise in (ilu0, ic0):
        with pytest.raises(TypeError, match=r"cannot factorise values of torch.float16.*float32"):
            factorise(matrix)
    with pytest.raises(TypeError, match="ic0 supports real"):
        ic0(matrix.to(torch.complex64))


def test_zero_pivot_names_the_row_and_a_shift_is_reported() -> None:
    dense = torch.tensor([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=torch.float64)
    matrix = CSR.from_dense(dense)
    with pytest.raises(ValueError, match="zero pivot in row 1"):
        ilu0(matrix)
    factors = ilu0(matrix, shift=0.25)
    assert factors.report.shift == 0.25
    shifted = factors.lower.to_dense() @ factors.upper.to_dense()
    torch.testing.assert_close(shifted, dense + 0.25 * torch.eye(3, dtype=torch.float64))


def breaking_down() -> CSR:
    """Positive definite, but IC(0) meets a negative pivot (Kershaw 1978)."""
    dense = torch.tensor(
        [[3.0, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]], dtype=torch.float64
    )
    assert float(torch.linalg.eigvalsh(dense)[0]) > 0
    return CSR.from_dense(dense)


def test_breakdown_shifts_the_diagonal_and_says_so() -> None:
    matrix = breaking_down()
    with pytest.warns(FactorisationWarning, match=r"the factor is that of A \+ .* diag\(A\)") as seen:
        factors = ic0(matrix)
    assert seen[0].filename == __file__
    assert factors.shift > 0
    assert factors.report.shift == factors.shift
    expected = ic0(
        CSR.from_dense(matrix.to_dense() + factors.shift * torch.diag(matrix.to_dense().diagonal()))
    )
    torch.testing.assert_close(factors.lower.to_dense(), expected.lower.to_dense())
    with pytest.raises(ValueError, match="breaks down in row 3 with shift 0: the pivot is not positive"):
        ic0(matrix, shift=0.0)
    assert ic0(matrix, shift=0.5).shift == 0.5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "factorise",
    [ilu0, partial(iluk, level=1), ic0, lu, cholesky, jacobi, gauss_seidel],
)
def test_the_entry_that_is_not_finite_is_named(factorise: Callable[[CSR], Any], value: float) -> None:
    matrix = generators.poisson_2d(4)
    matrix = matrix.with_values(matrix.values.clone())
    entry = int(matrix.row_ptr[5]) + 2
    matrix.values[entry] = value
    column = int(matrix.col[entry])
    with pytest.raises(ValueError, match=rf"matrix is not finite: entry \(5, {column}\) is {value};"):
        factorise(matrix)


def test_ic0_refuses_what_is_not_symmetric_positive() -> None:
    with pytest.raises(ValueError, match=r"stores \(0, 1\) and not its mirror image"):
        ic0(CSR.from_dense(torch.tensor([[2.0, 1], [0, 2]])))
    with pytest.raises(ValueError, match=r"entry \(0, 1\) is 1, its mirror image -1"):
        ic0(CSR.from_dense(torch.tensor([[2.0, 1], [-1, 2]])))
    with pytest.raises(ValueError, match="the diagonal of row 1 is -2"):
        ic0(CSR.from_dense(torch.diag(torch.tensor([2.0, -2.0]))))
    with pytest.raises(ValueError, match="shift must be 0 or more"):
        ic0(CSR.from_dense(torch.eye(2)), shift=-1.0)


def test_wrong_arguments() -> None:
    matrix = CSR.from_dense(torch.eye(3))
    for factorise in (ilu0, ic0):
        with pytest.raises(TypeError, match="must be CSR, got COO"):
            factorise(matrix.to(COO))  # type: ignore[operator]
        with pytest.raises(ValueError, match="must be square"):
            factorise(CSR.from_dense(torch.ones(2, 3)))
        with pytest.raises(ValueError, match="no diagonal entry in row 1"):
            factorise(CSR.from_dense(torch.diag(torch.tensor([1.0, 0, 1]))))
        with pytest.raises(ValueError, match="reorder must be None or 'multicolour'"):
            factorise(matrix, reorder="rcm")  # type: ignore[operator]
    with pytest.raises(ValueError, match="level must be 0 or more, got -1"):
        iluk(matrix, -1)


@pytest.mark.gpu
@pytest.mark.parametrize("reorder", [None, "multicolour"])
def test_cuda_equals_cpu(cuda: torch.device, reorder: Any) -> None:
    array = poisson(12, 13)
    here = CSR.from_scipy(array)
    there = here.to(cuda)
    b = torch.randn(156, dtype=torch.float64)
    pairs: list[tuple[Tensor, Tensor]] = []
    for factorise in (ilu0, ic0):
        on_cpu, on_cuda = factorise(here, reorder=reorder), factorise(there, reorder=reorder)
        pairs += [(on_cpu.lower.values, on_cuda.lower.values), (on_cpu.solve(b), on_cuda.solve(b.to(cuda)))]
    for expected, found in pairs:
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-12, atol=1e-12)
