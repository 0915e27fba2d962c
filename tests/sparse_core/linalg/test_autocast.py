"""Autocast changes nothing in sparse products, solves and conversions: same type, same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core import linalg
from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix
from sparse_core.formats.generators import poisson_2d

SIZE = 25


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same_under_autocast(compute: Callable[[], Tensor], kind: str = "cpu") -> None:
    expected = compute()
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(kind, dtype=dtype):
            found = compute()
            # Later operations are still under autocast.
            assert (numbers(2, 2).to(kind) @ numbers(2, 2).to(kind)).dtype == dtype
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


FORMATS: list[tuple[type[SparseMatrix], dict[str, Any]]] = [
    (COO, {}),
    (CSR, {}),
    (ELL, {}),
    (SlicedELL, {}),
    (HYB, {"quantile": 0.3}),
    (BSR, {"block_size": 4}),
    (NM, {"n": 4}),
    (CompactCSR, {}),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("target", "options"), FORMATS)
def test_products_and_conversions(
    target: type[SparseMatrix], options: dict[str, Any], dtype: torch.dtype
) -> None:
    csr = poisson_2d(5).to(dtype)
    matrix = csr.to(target, **options)
    x, several = torch.ones(SIZE, dtype=dtype), torch.ones(2, SIZE, 3, dtype=dtype)
    for compute in (
        lambda: csr.to(target, **options).to_dense(),
        lambda: matrix.to_dense(),
        lambda: matrix @ x,
        lambda: x @ matrix,
        lambda: matrix @ several,
        lambda: (matrix @ matrix).to_dense(),
    ):
        same_under_autocast(compute)


def sampled(matrix: SparseMatrix, left: Tensor, right: Tensor, **options: Any) -> Tensor:
    return linalg.sddmm(matrix, left, right, **options).values  # type: ignore[type-var]


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_sampled_products(impl: str) -> None:
    left, right = numbers(SIZE, 7), numbers(7, SIZE, seed=1)
    for matrix in (poisson_2d(5), poisson_2d(5).to(BSR, block_size=4), poisson_2d(5).to(COO)):
        same_under_autocast(lambda matrix=matrix: sampled(matrix, left, right, impl=impl))


def solver_cases() -> dict[str, Callable[[CSR, Tensor], Tensor]]:
    cases: dict[str, Callable[[CSR, Tensor], Tensor]] = {
        "solve": lambda matrix, b: linalg.solve(matrix, b, rtol=1e-6),
        "triangular": lambda matrix, b: linalg.triangular_solve(lower(matrix), b),
        "dense gmres": lambda matrix, b: linalg.gmres(matrix.to_dense(), b).x,
        "function cg": lambda matrix, b: linalg.cg(lambda x: matrix.to_dense() @ x, b).x,
    }
    for name in ("cg", "bicgstab", "gmres", "minres"):
        cases[name] = lambda matrix, b, name=name: getattr(linalg, name)(matrix, b, rtol=1e-6).x
    for name in ("ilu0", "ic0", "lu", "cholesky", "jacobi", "gauss_seidel"):
        cases[name] = lambda matrix, b, name=name: getattr(linalg, name)(matrix).solve(b)
    return cases


def lower(matrix: CSR) -> CSR:
    return CSR.from_dense(matrix.detach().to_dense().tril())


@pytest.mark.parametrize("name", solver_cases())
def test_solvers_and_factors(name: str) -> None:
    compute = solver_cases()[name]
    same_under_autocast(lambda: compute(poisson_2d(5), numbers(SIZE)))


def test_multigrid() -> None:
    pytest.importorskip("pyamg")
    matrix, b = poisson_2d(12), numbers(144)
    multigrid = linalg.algebraic_multigrid(matrix)
    same_under_autocast(lambda: multigrid.solve(b))
    same_under_autocast(lambda: linalg.cg(matrix, b, preconditioner=multigrid).x)


LOSSES: dict[str, Callable[[CSR, Tensor], Tensor]] = {
    "spmv": lambda matrix, x: matrix @ x,
    "transposed spmv": lambda matrix, x: x @ matrix,
    "spmm": lambda matrix, x: matrix @ torch.outer(x, x[:3]),
    "spgemm": lambda matrix, x: (matrix @ matrix).values * x.sum(),
    "sddmm": lambda matrix, x: sampled(matrix, x[:, None], x[None]) * matrix.values,
    "blocks": lambda matrix, x: matrix.to(BSR, block_size=4) @ x,
    "solve": lambda matrix, x: linalg.solve(matrix, x),
    "triangular": lambda matrix, x: linalg.triangular_solve(matrix, x),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("inside", [True, False])
def test_gradients(name: str, inside: bool, device: torch.device) -> None:
    matrix, x = poisson_2d(5).to(device), numbers(SIZE).to(device)

    def gradients(enabled: bool) -> Tensor:
        values, vector = matrix.values.clone().requires_grad_(), x.clone().requires_grad_()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
            loss = LOSSES[name](matrix.with_values(values), vector).square().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        assert values.grad is not None
        assert vector.grad is not None
        return torch.cat([values.grad, vector.grad])

    assert torch.equal(gradients(True), gradients(False))
