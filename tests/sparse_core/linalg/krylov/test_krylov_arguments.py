"""What the solvers accept and refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparse_core.errors import ImplementationError
from sparse_core.formats import COO, CSR
from sparse_core.linalg import SolveResult, bicgstab, cg, gmres, minres, solve

every_solver = pytest.mark.parametrize("solver", [cg, bicgstab, gmres, minres])
Solver = Callable[..., SolveResult]
EYE = torch.eye(3)


@every_solver
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(solver: Solver, dtype: torch.dtype) -> None:
    half = CSR.from_dense(2 * EYE).to(dtype)
    with pytest.raises(TypeError, match=r"not in torch\.\w+: pass b\.to\(torch\.float32\)"):
        solver(half, torch.ones(3, dtype=dtype))
    result = solver(half, torch.ones(3))
    assert result.converged
    assert result.x.dtype == torch.float32
    assert result.x.tolist() == pytest.approx([0.5, 0.5, 0.5])


@every_solver
def test_types_are_promoted(solver: Solver) -> None:
    for matrix, b, expected in (
        (EYE.double(), torch.ones(3), torch.float64),
        (CSR.from_dense(EYE), torch.ones(3).double(), torch.float64),
        (EYE, torch.ones(3, dtype=torch.complex64), torch.complex64),
        (COO.from_dense(EYE.to(torch.complex128)), torch.ones(3), torch.complex128),
    ):
        result = solver(matrix, b)
        assert result.x.dtype == expected
        assert result.converged


@every_solver
@pytest.mark.parametrize(
    ("matrix", "b", "options", "error", "message"),
    [
        (EYE, torch.ones(4), {}, ValueError, r"for the 4 rows of b, got \(3, 3\)"),
        (torch.ones(3, 2), torch.ones(3), {}, ValueError, r"for the 3 rows of b, got \(3, 2\)"),
        (EYE, torch.ones(3, dtype=torch.int64), {}, None, ""),
        (lambda x: x, torch.ones(3, dtype=torch.int64), {}, TypeError, "not in torch.int64"),
        (EYE, [1.0, 1.0, 1.0], {}, TypeError, "b must be a torch tensor, got list"),
        (
            "matrix",
            torch.ones(3),
            {},
            TypeError,
            "matrix must be a SparseMatrix, a torch tensor",
        ),
        (EYE, torch.ones(3, 1, 1), {}, ValueError, r"\(3, 1, 1\)"),
        (
            EYE,
            torch.ones(3),
            {"x0": torch.ones(2)},
            ValueError,
            r"x0 must be like b, \(3,\) on cpu; got",
        ),
        (EYE, torch.ones(3), {"rtol": -1.0}, ValueError, "rtol must be finite and not negative, got -1.0"),
        (EYE, torch.ones(3), {"atol": float("nan")}, ValueError, "atol must be finite"),
        (EYE, torch.ones(3), {"max_iterations": -1}, ValueError, "max_iterations must not be negative"),
        (EYE, torch.ones(3), {"check_every": 0}, ValueError, "check_every must be at least 1"),
        (lambda x: x[:2], torch.ones(3), {}, ValueError, r"matrix must return a tensor \(3,\) on cpu"),
        (lambda x: x * 1j, torch.ones(3), {}, TypeError, "returned torch.complex64 for torch.float32"),
        (
            EYE,
            torch.ones(3),
            {"preconditioner": torch.eye(2)},
            ValueError,
            r"preconditioner must have shape .* got \(2, 2\)",
        ),
        (
            EYE,
            torch.ones(3),
            {"preconditioner": lambda r: None},
            ValueError,
            "preconditioner .* NoneType",
        ),
    ],
)
def test_arguments(
    solver: Solver, matrix: Any, b: Any, options: dict[str, Any], error: type[Exception] | None, message: str
) -> None:
    if error is None:
        assert solver(matrix, b, **options).converged
        return
    with pytest.raises(error, match=message):
        solver(matrix, b, **options)


def test_preconditioner_of_another_shape() -> None:
    class Scaling:
        shape = (4, 4)

        def __call__(self, residual: torch.Tensor) -> torch.Tensor:
            return residual

    with pytest.raises(ValueError, match=r"preconditioner has shape \(4, 4\), but b has 3 rows"):
        cg(EYE, torch.ones(3), preconditioner=Scaling())


def test_preconditioner_of_another_precision() -> None:
    matrix = CSR.from_dense(torch.diag(torch.arange(1.0, 20.0, dtype=torch.float64)))
    inverse = torch.diag(1 / torch.arange(1.0, 20.0))
    plain = cg(matrix, torch.ones(19, dtype=torch.float64), rtol=1e-12)
    for preconditioner in (inverse, lambda r: inverse @ r.float()):
        result = cg(matrix, torch.ones(19, dtype=torch.float64), rtol=1e-12, preconditioner=preconditioner)
        assert result.converged
        assert result.iterations <= 3 < plain.iterations


def test_gmres_needs_a_basis() -> None:
    with pytest.raises(ValueError, match="restart must be at least 1, got 0"):
        gmres(EYE, torch.ones(3), restart=0)


def test_implementations() -> None:
    with pytest.raises(ValueError, match="impl must be one of"):
        cg(EYE, torch.ones(3), impl="fast")  # type: ignore[arg-type]
    with pytest.raises(ImplementationError, match="cg has no vendor implementation"):
        cg(EYE, torch.ones(3), impl="vendor")


@pytest.mark.parametrize("solver", [cg, bicgstab])
def test_graphs_need_cuda(solver: Solver) -> None:
    with pytest.raises(ValueError, match="use_graph=True needs CUDA tensors, b is on cpu"):
        solver(EYE, torch.ones(3), use_graph=True)
    assert solver(EYE, torch.ones(3)).execution == "plain: no CUDA"


@pytest.mark.gpu
@every_solver
def test_devices_that_differ(solver: Solver, cuda: torch.device) -> None:
    with pytest.raises(ValueError, match=r"matrix is on cpu, b on cuda:0"):
        solver(EYE, torch.ones(3, device=cuda))
    with pytest.raises(ValueError, match=r"x0 must be like b"):
        solver(EYE.to(cuda), torch.ones(3, device=cuda), torch.ones(3))


@every_solver
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"])
def test_sparse_torch_tensors(solver: Solver, layout: str) -> None:
    dense = torch.diag(torch.tensor([2.0, 3, 4, 5])) + 0.1
    size = {"blocksize": (2, 2)} if layout == "sparse_bsr" else {}
    matrix = dense.to_sparse(layout=getattr(torch, layout), **size)
    inverse = torch.diag(1 / dense.diagonal()).to_sparse_csr()
    for b in (torch.ones(4), torch.eye(4)[:, :2]):
        result = solver(matrix, b, preconditioner=inverse)
        assert result.converged
        torch.testing.assert_close(dense @ result.x, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_gradients_reach_sparse_torch_tensors(layout: torch.layout) -> None:
    dense = torch.diag(torch.tensor([2.0, 3, 4, 5])).double()
    matrix = dense.to_sparse(layout=layout).requires_grad_()
    solve(matrix, torch.ones(4).double(), rtol=1e-12).sum().backward()
    assert matrix.grad is not None
    torch.testing.assert_close(matrix.grad.to_dense().diagonal(), -(dense.diagonal() ** -2))


@every_solver
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("maxiter", "use max_iterations"),
        ("tol", "use rtol"),
        ("M", "use preconditioner"),
        ("x", "use atol, "),
    ],
)
def test_unknown_options_name_the_known_ones(solver: Solver, name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=f"have no option '{name}': {hint}"):
        solver(EYE, torch.ones(3), **{name: 1})
