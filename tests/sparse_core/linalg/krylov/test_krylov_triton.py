"""Fused updates and CUDA graphs against the plain iterations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.errors import ImplementationError
from sparse_core.formats import CSR
from sparse_core.linalg import bicgstab, cg

SCRIPT = Path(__file__).with_name("compare_krylov_updates.py")
#: Facts of a case that must hold.
AGREEMENTS = ("reason", "iterations", "x", "residuals", "repeats")
ENDINGS = {
    "runs out": "max_iterations",
    "indefinite": "not positive definite: p·Ap",
    "bad preconditioner": "not positive definite: r·M r <= 0",
    "not finite": "breakdown: a value is not finite",
}


def check(report: dict[str, Any]) -> None:
    assert len(report["cases"]) == 14
    for name, case in report["cases"].items():
        assert all(case[fact] for fact in AGREEMENTS), (name, case)
        assert case["ending"].startswith(ENDINGS.get(name, "converged")), (name, case)
        # The path that ran: a zero right-hand side needs no step.
        assert (case["steps"] > 0) == (name != "zero"), (name, case)
    assert report["cases"]["float64"]["count"] > 7


@interpreted_and_compiled
def test_updates_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(40, 200_000))
    check(report)


@pytest.mark.gpu
@pytest.mark.parametrize("b", [torch.ones(3, 2), torch.ones(3, dtype=torch.complex64), torch.ones(0)])
def test_fusing_needs_one_real_right_hand_side(b: Tensor, cuda: torch.device) -> None:
    pytest.importorskip("triton")
    matrix = torch.eye(len(b), device=cuda)
    with pytest.raises(ImplementationError, match="one non-empty real right-hand side"):
        cg(matrix, b.to(cuda), impl="triton")
    assert cg(matrix, b.to(cuda)).converged


def line(size: int, device: torch.device, dtype: torch.dtype = torch.float64) -> CSR:
    off = -torch.ones(size - 1, dtype=dtype)
    middle = torch.full((size,), 2.1, dtype=dtype)
    return CSR.from_dense(torch.diag(middle) + torch.diag(off, 1) + torch.diag(off, -1)).to(device)


@pytest.mark.gpu
@pytest.mark.parametrize("solver", [cg, bicgstab])
@pytest.mark.parametrize("columns", [None, 3])
def test_graph_replays_the_plain_iterations(solver: Any, columns: int | None, cuda: torch.device) -> None:
    matrix = line(700, cuda)
    generator = torch.Generator().manual_seed(0)
    shape = (700,) if columns is None else (700, columns)
    b = torch.randn(shape, dtype=torch.float64, generator=generator).to(cuda)
    plain = solver(matrix, b, rtol=1e-10, check_every=4, use_graph=False)
    graph = solver(matrix, b, rtol=1e-10, check_every=4, use_graph=True)
    chosen = solver(matrix, b, rtol=1e-10, check_every=4)
    assert plain.converged
    assert plain.iterations > 20
    assert plain.execution == "plain: use_graph=False"
    for result in (graph, chosen):
        assert result.execution == "CUDA graph of 4 iterations"
        assert torch.equal(result.x, plain.x)
        assert result.residuals == plain.residuals
        assert (result.iterations, result.reason) == (plain.iterations, "converged")


class Halving:
    """A preconditioner; it may read from the device, which no graph can hold."""

    def __init__(self, *, reads: bool, graph_safe: bool) -> None:
        self.reads, self.graph_safe = reads, graph_safe

    def __call__(self, residual: Tensor) -> Tensor:
        if self.reads:
            assert residual[0].item() == residual[0].item()
        return residual * 0.5


@pytest.mark.gpu
def test_graph_only_where_it_is_safe(cuda: torch.device) -> None:
    matrix, b = line(300, cuda), torch.rand(300, dtype=torch.float64, device=cuda)
    safe = cg(matrix, b, preconditioner=Halving(reads=False, graph_safe=True), check_every=3)
    assert safe.execution == "CUDA graph of 3 iterations"
    unsafe = cg(matrix, b, preconditioner=Halving(reads=True, graph_safe=False), check_every=3)
    assert unsafe.execution == "plain: the preconditioner does not declare graph_safe"
    function = cg(lambda x: matrix @ x, b, check_every=3)
    assert function.execution.startswith("plain: the matrix is a function")
    forced = cg(lambda x: matrix @ x, b, check_every=3, use_graph=True)
    assert forced.execution == "CUDA graph of 3 iterations"
    for result in (unsafe, function, forced):
        torch.testing.assert_close(matrix @ result.x, b, rtol=0, atol=1e-3)


@pytest.mark.gpu
def test_capture_that_fails(cuda: torch.device) -> None:
    """A wrong ``graph_safe`` is reported in the result, or raised with ``use_graph=True``."""
    matrix, b = line(300, cuda), torch.rand(300, dtype=torch.float64, device=cuda)
    liar = Halving(reads=True, graph_safe=True)
    result = cg(matrix, b, preconditioner=liar, check_every=3)
    assert result.converged
    assert result.execution.startswith("plain: capture failed (")
    with pytest.raises(ImplementationError, match="iterations cannot be captured"):
        cg(matrix, b, preconditioner=liar, check_every=3, use_graph=True)
    assert cg(matrix, b, check_every=3).execution == "CUDA graph of 3 iterations"
