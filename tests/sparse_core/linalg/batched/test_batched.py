"""Batched factorisations against torch.linalg.solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.linalg import BatchedCholesky, BatchedLU, batched_cholesky, batched_lu

both = pytest.mark.parametrize("factorise", [batched_lu, batched_cholesky])
Factorise = Callable[..., BatchedLU | BatchedCholesky]


def matrices(*batch: int, size: int = 5, dtype: torch.dtype = torch.float64) -> Tensor:
    """Hermitian positive definite."""
    factor = torch.randn(*batch, size, size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return factor @ factor.mH + torch.eye(size, dtype=dtype)


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_solutions(
    factorise: Factorise, dtype: torch.dtype, batch: tuple[int, ...], device: torch.device
) -> None:
    a = matrices(*batch, dtype=dtype).to(device)
    factors = factorise(a)
    assert factors.shape == (*batch, 5, 5)
    assert not factors.failed.any()
    for b in (torch.ones(*batch, 5, dtype=dtype, device=device), torch.rand(*batch, 5, 3).to(a)):
        x = factors.solve(b)
        assert x.shape == b.shape
        vectors = b.ndim == len(batch) + 1
        expected = torch.linalg.solve(a, b[..., None] if vectors else b).reshape(b.shape)
        torch.testing.assert_close(x, expected, rtol=1e-3 if a.dtype.itemsize < 9 else 1e-9, atol=1e-4)


def test_lu_of_a_general_matrix_exchanges_rows() -> None:
    swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[2.0, 1.0], [0.0, 1.0]]])
    assert batched_lu(swap).solve(torch.tensor([[3.0, 5.0], [3.0, 1.0]])).tolist() == [[5.0, 3.0], [1.0, 1.0]]


@both
@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0)])
def test_nothing_to_factorise(factorise: Factorise, shape: tuple[int, ...]) -> None:
    factors = factorise(torch.zeros(shape))
    assert factors.solve(torch.zeros(shape[:-1])).shape == shape[:-1]
    assert factors.solve(torch.zeros(*shape[:-1], 2)).shape == (*shape[:-1], 2)


@both
def test_gradients(factorise: Factorise) -> None:
    a, b = matrices(2, size=3), torch.rand(2, 3, dtype=torch.float64)

    def solution(a: Tensor, b: Tensor) -> Tensor:
        return factorise((a + a.mT) / 2).solve(b)

    assert torch.autograd.gradcheck(solution, (a.requires_grad_(), b.requires_grad_()))


def test_singular_matrices_are_named() -> None:
    a = matrices(2, 6)
    a[0, 4, :, 2] = 0
    a[1, 3] = 0
    pattern = r"matrices\[0, 4\] is singular: pivot 2 is zero; so are matrices\[1, 3\]$"
    with pytest.raises(ValueError, match=pattern):
        batched_lu(a)
    with pytest.raises(ValueError, match=r"^matrices is singular: pivot 0 is zero$"):
        batched_lu(torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"matrices\[4\] and 3 more$"):
        batched_lu(torch.zeros(8, 2, 2))


@pytest.mark.parametrize("factorise", [batched_lu, batched_cholesky])
def test_entries_that_are_not_finite_are_named(factorise: Factorise) -> None:
    matrices = torch.eye(3).repeat(4, 1, 1)
    matrices[2, 1, 0] = float("nan")
    with pytest.raises(ValueError, match=r"^matrices\[2\] is not finite: entry \(1, 0\) is nan; replace it$"):
        factorise(matrices)
    assert bool(factorise(matrices, check=False).solve(torch.ones(4, 3))[2].isnan().any())


def test_matrices_that_are_not_positive_definite_are_named() -> None:
    a = matrices(4)
    a[2] = torch.diag(torch.tensor([1.0, 2.0, -1.0, 3.0, 1.0]))
    with pytest.raises(
        ValueError, match=r"^matrices\[2\] is not positive definite: its leading block of 3 rows is not$"
    ):
        batched_cholesky(a)


@both
def test_failures_stay_in_their_place(factorise: Factorise, device: torch.device) -> None:
    a = matrices(4).to(device)
    a[1] = 0
    factors = factorise(a, check=False)
    assert factors.failed.tolist() == [False, True, False, False]
    for b in (torch.ones(4, 5).to(a), torch.ones(4, 5, 2).to(a)):
        x = factors.solve(b)
        assert x[1].isnan().all()
        good = [0, 2, 3]
        right = b[good] if b.ndim == 3 else b[good][..., None]
        torch.testing.assert_close(x[good], torch.linalg.solve(a[good], right).reshape(x[good].shape))


@both
def test_arguments(factorise: Factorise) -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (torch.ones(3, 2), ValueError, r"\(..., n, n\), got \(3, 2\)"),
        (torch.ones(3), ValueError, r"got \(3,\)"),
        (torch.eye(3).half(), TypeError, r"got torch\.float16"),
        (torch.eye(3).int(), TypeError, r"got torch\.int32"),
        ([[1.0]], TypeError, "got list"),
    ]
    for given, error, message in wrong:
        with pytest.raises(error, match=message):
            factorise(given)
    factors = factorise(matrices(2))
    with pytest.raises(ValueError, match=r"b must be \(2, 5\) or \(2, 5, 'k'\), got \(3, 5\)"):
        factors.solve(torch.ones(3, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"b is torch\.float32 on cpu, the matrices are torch\.float64"):
        factors.solve(torch.ones(2, 5))
