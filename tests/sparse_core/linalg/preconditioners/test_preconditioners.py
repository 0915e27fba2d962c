from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import LinearOperator, bicgstab, cg

from sparse_core import linalg
from sparse_core.formats import COO, CSR, generators
from sparse_core.linalg import (
    ApproximateSolver,
    Preconditioner,
    algebraic_multigrid,
    gauss_seidel,
    ic0,
    ilu0,
    iluk,
    jacobi,
    multicolour_order,
)
from sparse_core.linalg.krylov.scaling import times_power

#: Preconditioners of conjugate gradients, and the largest share of iterations they may need on Poisson.
SYMMETRIC: dict[str, tuple[Callable[[CSR], ApproximateSolver], float]] = {
    "ic0": (ic0, 0.45),
    "ic0 multicolour": (lambda matrix: ic0(matrix, reorder="multicolour"), 0.6),
    "ilu0": (ilu0, 0.45),
    "iluk": (lambda matrix: iluk(matrix, 2), 0.25),
    "gauss_seidel": (gauss_seidel, 0.6),
    "gauss_seidel twice": (lambda matrix: gauss_seidel(matrix, sweeps=2), 0.45),
    "smoothed_aggregation": (algebraic_multigrid, 0.15),
    "ruge_stuben": (lambda matrix: algebraic_multigrid(matrix, method="ruge_stuben"), 0.15),
    "W cycle": (lambda matrix: algebraic_multigrid(matrix, cycle="W"), 0.15),
}


def poisson(*shape: int) -> Any:
    gallery = pytest.importorskip("pyamg.gallery")
    return scipy.sparse.csr_array(gallery.poisson(shape, format="csr"))


def example(name: str) -> Any:
    gallery = pytest.importorskip("pyamg.gallery")
    array = scipy.sparse.csr_array(gallery.load_example(name)["A"])
    array.sort_indices()
    return array


def iterations(array: Any, preconditioner: ApproximateSolver | None, method: Any = cg) -> int:
    """Iterations of scipy's solver to a relative residual of 1e-8, which is checked."""
    b = np.random.default_rng(0).standard_normal(array.shape[0])
    operator = None
    if preconditioner is not None:
        operator = LinearOperator(
            array.shape,
            matvec=lambda residual: preconditioner(torch.from_numpy(residual)).numpy(),
            dtype=array.dtype,
        )
    count = 0

    def counted(_: Any) -> None:
        nonlocal count
        count += 1

    x, state = method(array, b, rtol=1e-8, M=operator, callback=counted, maxiter=3000)
    assert state == 0
    assert np.linalg.norm(array @ x - b) < 1e-7 * np.linalg.norm(b)
    return count


@pytest.mark.parametrize("name", SYMMETRIC)
def test_conjugate_gradients_need_fewer_iterations(name: str) -> None:
    build, part = SYMMETRIC[name]
    array = poisson(30, 30)
    preconditioner = build(CSR.from_scipy(array))
    assert isinstance(preconditioner, Preconditioner)
    assert preconditioner.shape == array.shape
    assert iterations(array, preconditioner) < part * iterations(array, None)


@pytest.mark.parametrize("name", ["airfoil", "bar", "knot", "unit_cube", "local_disc_galerkin_diffusion"])
def test_shipped_matrices_need_fewer_iterations(name: str) -> None:
    array = example(name)
    matrix = CSR.from_scipy(array)
    plain = iterations(array, None)
    assert iterations(array, ic0(matrix)) < plain
    assert iterations(array, gauss_seidel(matrix)) < plain


def test_an_unsymmetric_matrix_needs_fewer_iterations() -> None:
    array = example("recirc_flow")
    matrix = CSR.from_scipy(array)
    plain = iterations(array, None, bicgstab)
    assert iterations(array, ilu0(matrix), bicgstab) < 0.5 * plain
    assert iterations(array, gauss_seidel(matrix, symmetric=False), bicgstab) < plain


@pytest.mark.parametrize("name", SYMMETRIC)
def test_symmetric_positive_definite(name: str) -> None:
    build, _ = SYMMETRIC[name]
    # More unknowns than multigrid solves directly.
    array = poisson(20, 21)
    inverse = build(CSR.from_scipy(array)).solve(torch.eye(420, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-10 * abs(inverse).max())
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0


@pytest.mark.parametrize("sweeps", [1, 3])
@pytest.mark.parametrize("symmetric", [False, True])
def test_gauss_seidel_equals_sweeps_in_the_order_of_the_colours(sweeps: int, symmetric: bool) -> None:
    array = example("unit_square")
    matrix = CSR.from_scipy(array)
    order = multicolour_order(matrix).permutation.numpy()
    b = np.random.default_rng(1).standard_normal(len(order))
    x = np.zeros(len(order))
    for _ in range(sweeps):
        for row in np.concatenate([order, order[::-1]]) if symmetric else order:
            x[row] += (b[row] - (array[[row]] @ x)[0]) / array[row, row]
    found = gauss_seidel(matrix, sweeps=sweeps, symmetric=symmetric).solve(torch.from_numpy(b))
    np.testing.assert_allclose(found.numpy(), x, rtol=1e-12, atol=1e-13)


def test_jacobi_divides_by_the_diagonal() -> None:
    matrix = CSR.from_dense(torch.tensor([[2.0, 1], [1, 4]]))
    assert jacobi(matrix)(torch.tensor([2.0, 2])).tolist() == [1, 0.5]
    assert jacobi(matrix, damping=0.5).solve(torch.tensor([[2.0, 4], [2, 8]])).tolist() == [
        [0.5, 1],
        [0.25, 1],
    ]


@pytest.mark.parametrize("name", [*SYMMETRIC, "jacobi"])
def test_several_right_hand_sides_and_float32(name: str) -> None:
    build = jacobi if name == "jacobi" else SYMMETRIC[name][0]
    preconditioner = build(CSR.from_scipy(poisson(9, 8)).to(torch.float32))
    b = torch.randn(72, 3, generator=torch.Generator().manual_seed(0))
    together = preconditioner.solve(b)
    assert together.dtype == torch.float32
    for column in range(3):
        torch.testing.assert_close(together[:, column], preconditioner.solve(b[:, column]))
    with pytest.raises(ValueError, match=r"b must have shape \(72,\) or \(72, N\), got \(71,\)"):
        preconditioner.solve(torch.ones(71))


@pytest.mark.parametrize("build", [jacobi, gauss_seidel])
def test_no_row_one_row_and_complex(build: Callable[[CSR], ApproximateSolver]) -> None:
    assert build(CSR.from_dense(torch.zeros(0, 0))).solve(torch.zeros(0)).shape == (0,)
    one = build(CSR.from_dense(torch.full((1, 1), 4.0)))
    assert one.solve(torch.ones(1)).tolist() == [0.25]
    assert one.solve(torch.ones(1, dtype=torch.complex64)).tolist() == [0.25]
    imaginary = build(CSR.from_dense(torch.full((1, 1), 2j)))
    assert imaginary.solve(torch.ones(1)).tolist() == [-0.5j]


def test_multigrid_says_what_it_built() -> None:
    multigrid = algebraic_multigrid(CSR.from_scipy(poisson(40, 40)))
    text = multigrid.describe()
    assert "smoothed_aggregation multigrid, 2 levels, setup" in text
    assert "level 0: 1600 unknowns, 7840 entries" in text
    assert multigrid.setup_s > 0
    assert multigrid.levels[0].matrix.shape == (1600, 1600)


def test_multigrid_is_the_same_in_every_run_and_leaves_numpy_alone() -> None:
    matrix, b = CSR.from_scipy(poisson(25, 25)), torch.ones(625, dtype=torch.float64)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = algebraic_multigrid(matrix).solve(b)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    torch.testing.assert_close(algebraic_multigrid(matrix).solve(b), first, rtol=1e-12, atol=1e-12)


def test_multigrid_of_a_singular_problem() -> None:
    gallery = pytest.importorskip("pyamg.gallery")
    array = scipy.sparse.csr_array(gallery.poisson((8, 8), format="csr"))
    array.setdiag(array.diagonal() - array.sum(axis=1))
    b = torch.linspace(-1, 1, 64, dtype=torch.float64)
    x = algebraic_multigrid(CSR.from_scipy(array)).solve(b)
    np.testing.assert_allclose(array @ x.numpy(), b.numpy(), atol=1e-10)


def test_wrong_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = CSR.from_dense(torch.eye(3))
    for build in (jacobi, gauss_seidel, algebraic_multigrid):
        with pytest.raises(TypeError, match="must be CSR, got COO"):
            build(matrix.to(COO))  # type: ignore[operator]
        with pytest.raises(ValueError, match="must be square"):
            build(CSR.from_dense(torch.ones(2, 3)))
        with pytest.raises(TypeError, match=r"values of torch\.float16"):
            build(matrix.to(torch.float16))
    for relax in (jacobi, gauss_seidel):
        with pytest.raises(ValueError, match=r"no diagonal entry in row 1 \(1 such rows\): store it$"):
            relax(CSR.from_dense(torch.tensor([[1.0, 1], [1, 0]])))
    with pytest.raises(ValueError, match="sweeps must be 1 or more, got 0"):
        gauss_seidel(matrix, sweeps=0)
    with pytest.raises(ValueError, match="method must be"):
        algebraic_multigrid(matrix, method="geometric")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cycle must be"):
        algebraic_multigrid(matrix, cycle="F")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="supports real values"):
        algebraic_multigrid(matrix.to(torch.complex64))
    monkeypatch.setattr("sparse_core.linalg.preconditioners.multigrid.module_available", lambda name: False)
    with pytest.raises(ModuleNotFoundError, match="pip install pyamg"):
        algebraic_multigrid(matrix)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SYMMETRIC)
def test_cuda_equals_cpu(cuda: torch.device, name: str) -> None:
    build, _ = SYMMETRIC[name]
    matrix = CSR.from_scipy(poisson(20, 20))
    b = torch.randn(400, dtype=torch.float64)
    expected, found = build(matrix).solve(b), build(matrix.to(cuda)).solve(b.to(cuda))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["smoothed_aggregation", "ruge_stuben"])
@pytest.mark.parametrize("exponent", [-996, 996])
def test_multigrid_of_matrices_of_any_size(method: Any, exponent: int) -> None:
    """Powers of two change no bit of the cycle."""
    pytest.importorskip("pyamg")
    matrix = generators.poisson_2d(20).to(torch.float64)
    b = torch.linspace(-1, 1, 400, dtype=torch.float64)
    scaled = matrix.with_values(times_power(matrix.values, [exponent]))
    found = algebraic_multigrid(scaled, method=method)
    expected = algebraic_multigrid(matrix, method=method)
    assert len(found.levels) == len(expected.levels) > 0
    assert torch.equal(times_power(found.solve(b), [exponent]), expected.solve(b))
    assert linalg.cg(scaled, b, preconditioner=found).converged
