"""Gradients of a solve against torch.linalg.solve and finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.errors import ConvergenceError
from sparse_core.formats import BSR, COO, CSR
from sparse_core.linalg import jacobi, solve

METHODS = ("cg", "bicgstab", "gmres")
#: Pattern of the lower triangle, its diagonal first.
LOWER = torch.tensor([[0, 1, 2, 3, 4, 1, 3, 4, 4], [0, 1, 2, 3, 4, 0, 1, 0, 3]])


def symmetric(parameters: Tensor, form: Any = CSR) -> Any:
    """Hermitian positive definite: one parameter fills both halves."""
    row, col = LOWER
    diagonal = parameters[:5] * parameters[:5].conj() + 4
    off = parameters[5:]
    coo = COO(
        torch.cat([row, col[5:]]), torch.cat([col, row[5:]]), torch.cat([diagonal, off, off.conj()]), (5, 5)
    )
    return coo if form is COO else coo.to(form)


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, dtype=dtype, generator=generator).requires_grad_()


@pytest.mark.parametrize(
    ("method", "form"), [("cg", CSR), ("cg", COO), ("cg", BSR), ("bicgstab", CSR), ("gmres", CSR)]
)
def test_finite_differences(method: Any, form: Any) -> None:
    def solution(parameters: Tensor, b: Tensor) -> Tensor:
        return solve(symmetric(parameters, form), b, method=method, rtol=1e-13)

    assert torch.autograd.gradcheck(solution, (draw(9), draw(5, seed=1)))


@pytest.mark.parametrize("method", METHODS)
def test_finite_differences_complex(method: Any) -> None:
    def solution(parameters: Tensor, b: Tensor) -> Tensor:
        return solve(symmetric(parameters), b, method=method, rtol=1e-13)

    inputs = draw(9, dtype=torch.complex128), draw(5, dtype=torch.complex128, seed=1)
    assert torch.autograd.gradcheck(solution, inputs, fast_mode=True)


@pytest.mark.parametrize("method", ["bicgstab", "gmres"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_general_matrix_against_torch(method: Any, dtype: torch.dtype, device: torch.device) -> None:
    kept = draw(6, 6, seed=4) < 0.6
    dense = (torch.eye(6, dtype=dtype) * 4 + draw(6, 6, dtype=dtype).detach() * kept).to(device)
    b = draw(6, dtype=dtype, seed=1).detach().to(device)
    weights = draw(6, dtype=dtype, seed=2).detach().to(device)
    matrix = CSR.from_dense(dense)
    values = matrix.values.clone().requires_grad_()
    right = b.clone().requires_grad_()
    x = solve(matrix.with_values(values), right, method=method, rtol=1e-13)
    (x * weights).sum().abs().backward()

    expected_matrix, expected_b = dense.clone().requires_grad_(), b.clone().requires_grad_()
    expected = torch.linalg.solve(expected_matrix, expected_b)
    (expected * weights).sum().abs().backward()
    torch.testing.assert_close(x, expected)
    torch.testing.assert_close(right.grad, expected_b.grad)
    wanted = expected_matrix.grad[dense != 0]
    torch.testing.assert_close(values.grad, wanted)


def test_dense_matrix_and_function() -> None:
    parameters, b = draw(9), draw(5, seed=1)
    dense = symmetric(parameters).to_dense()

    def solution(matrix: Tensor, b: Tensor) -> Tensor:
        return solve(matrix + matrix.mT, b, rtol=1e-13)

    assert torch.autograd.gradcheck(solution, (dense.detach().requires_grad_(), b))
    fixed = dense.detach()
    assert torch.autograd.gradcheck(lambda b: solve(lambda x: fixed @ x, b, rtol=1e-13), (b,))
    x = solve(lambda x: fixed @ x, b, method="gmres", rtol=1e-13)
    with pytest.raises(TypeError, match="needs the adjoint"):
        x.sum().backward()


def test_real_matrix_with_a_complex_right_hand_side() -> None:
    parameters, b = draw(9), draw(5, dtype=torch.complex128, seed=1)
    assert torch.autograd.gradcheck(lambda p, b: solve(symmetric(p), b, rtol=1e-13), (parameters, b))


def test_preconditioner_serves_both_solves() -> None:
    calls: list[int] = []
    parameters, b = draw(9), draw(5, seed=1)
    matrix = symmetric(parameters)
    inverse = jacobi(matrix.detach())

    def preconditioner(residual: Tensor) -> Tensor:
        calls.append(1)
        return inverse(residual)

    x = solve(matrix, b, rtol=1e-12, preconditioner=preconditioner)
    forward = len(calls)
    assert forward > 0
    x.sum().backward()
    assert len(calls) > forward
    dense = symmetric(parameters).to_dense()
    expected = torch.autograd.grad(torch.linalg.solve(dense, b).sum(), [parameters, b])
    torch.testing.assert_close(parameters.grad, expected[0])
    torch.testing.assert_close(b.grad, expected[1])


def test_adjoint_preconditioner() -> None:
    dense = torch.eye(4, dtype=torch.float64) * 3 + draw(4, 4).detach()
    b = draw(4, seed=1)
    inverse = torch.linalg.inv(dense)
    x = solve(
        CSR.from_dense(dense),
        b,
        method="gmres",
        rtol=1e-12,
        preconditioner=inverse,
        adjoint_preconditioner=inverse.mT.contiguous(),
        max_iterations=2,
    )
    x.sum().backward()
    torch.testing.assert_close(b.grad, torch.linalg.solve(dense.mT, torch.ones(4, dtype=torch.float64)))


def test_only_what_needs_a_gradient_is_solved_for() -> None:
    matrix, b = symmetric(draw(9).detach()), draw(5, seed=1)
    assert not solve(matrix, b.detach()).requires_grad
    x = solve(matrix, b, rtol=1e-13)
    x.sum().backward()
    torch.testing.assert_close(b.grad, solve(matrix, torch.ones_like(x), rtol=1e-13))
    grown = symmetric(draw(9))
    solve(grown, b.detach()).sum().backward()


def test_absolute_tolerance_means_the_same_for_the_adjoint() -> None:
    """A right-hand side of 1e-9 with an absolute tolerance: the adjoint's is of order one."""
    matrix, b = symmetric(draw(9).detach()), (draw(5, seed=1) * 1e-9).detach().requires_grad_()
    x = solve(matrix, b, rtol=0.0, atol=1e-18)
    x.sum().backward()
    expected = torch.linalg.solve(matrix.to_dense(), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(b.grad, expected, rtol=1e-7, atol=1e-7)


def test_failures() -> None:
    matrix, b = symmetric(draw(9)), draw(5, seed=1)
    with pytest.raises(ConvergenceError, match="cg did not reach"):
        solve(matrix, b, rtol=1e-13, max_iterations=1)
    # The right-hand side is an eigenvector, which one iteration solves; the adjoint's is not.
    easy = torch.zeros(5, dtype=torch.float64)
    easy[2] = 1
    x = solve(matrix, easy.requires_grad_(), rtol=1e-13, max_iterations=1)
    with pytest.raises(ConvergenceError, match="cg did not reach"):
        x.sum().backward()
    with pytest.raises(ValueError, match="method must be one of cg, bicgstab, gmres, minres; got 'lu'"):
        solve(matrix, b, method="lu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="solve has no option x0"):
        solve(matrix, b, x0=b)
