from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.errors import ImplementationError
from sparse_core.linalg import tridiagonal_solve

SCRIPT = Path(__file__).with_name("compare_tridiagonal.py")


def check(report: dict[str, Any]) -> None:
    assert len(report["cases"]) == 12
    for name, case in report["cases"].items():
        assert len(case) == 5
        assert all(case.values()), (name, case)
    assert report["flags"]["bad"] == [5, 66]
    assert report["flags"]["message"].startswith("zero pivot in row 1 of system 66:")


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret)
    check(report)


@pytest.mark.gpu
def test_auto_on_cuda(cuda: torch.device) -> None:
    """Many, few and complex systems give the result of the CPU."""
    generator = torch.Generator().manual_seed(0)
    for shape, dtype in (((2000, 9), torch.float64), ((2, 900), torch.float64), ((700, 5), torch.complex128)):
        lower, diagonal, upper, b = (torch.randn(shape, dtype=dtype, generator=generator) for _ in range(4))
        diagonal = diagonal + 8
        expected = tridiagonal_solve(lower, diagonal, upper, b)
        on_cuda = [part.to(cuda) for part in (lower, diagonal, upper, b)]
        torch.testing.assert_close(tridiagonal_solve(*on_cuda).cpu(), expected)
        with pytest.raises(ImplementationError, match="needs CPU tensors"):
            tridiagonal_solve(*on_cuda, impl="vendor")


@pytest.mark.gpu
def test_complex_systems_have_no_kernel(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    part = torch.ones(3, dtype=torch.complex64, device=cuda)
    with pytest.raises(ImplementationError, match=r"support torch\.complex64"):
        tridiagonal_solve(part, part, part, part, impl="triton")


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes CPU tensors")
def test_compiled_kernel_refuses_cpu_tensors() -> None:
    pytest.importorskip("triton")
    part = torch.ones(3)
    with pytest.raises(ImplementationError, match="needs CUDA tensors, got cpu"):
        tridiagonal_solve(part, part, part, part, impl="triton")
