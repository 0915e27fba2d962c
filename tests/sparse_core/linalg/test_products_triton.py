from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import run_script

from sparse_core.errors import ImplementationError
from sparse_core.formats import CSR
from sparse_core.linalg import sddmm, spmm, spmv

SCRIPT = Path(__file__).with_name("compare_products.py")
#: Kernels counted by the script that must have run.
LAUNCHED = {
    "spmv": (),
    "spmm": ("_runs_kernel", "_join_kernel", "_entries_kernel"),
    "sddmm": ("_entries_kernel", "_blocks_kernel"),
}
#: Least number of cases and of comparisons.
QUICK_CASES = {"spmv": (7, 100), "spmm": (5, 60), "sddmm": (4, 100)}
ALL_CASES = {"spmv": (18, 400), "spmm": (17, 300), "sddmm": (16, 400)}


def run_comparison(repository: Path, *arguments: str, interpret: bool) -> dict[str, Any]:
    return run_script(SCRIPT, repository, *arguments, interpret=interpret)


def check(report: dict[str, Any], operation: str, expected: tuple[int, int]) -> None:
    cases = report["cases"]
    wrong = {f"{case}: {name}": text for case, found in cases.items() for name, text in found.items() if text}
    assert wrong == {}
    assert len(cases) == expected[0]
    assert sum(map(len, cases.values())) >= expected[1]
    for kernel in LAUNCHED[operation]:
        assert report["launches"].get(kernel, 0) > 0, kernel


@pytest.mark.parametrize("operation", QUICK_CASES)
def test_interpreted_kernels_equal_the_reference(operation: str, repository: Path) -> None:
    report = run_comparison(repository, operation, "cpu", "10", "quick", interpret=True)
    assert report["interpreted"]
    check(report, operation, QUICK_CASES[operation])


@pytest.mark.slow
@pytest.mark.parametrize("operation", ALL_CASES)
def test_interpreted_kernels_equal_the_reference_in_all_types(operation: str, repository: Path) -> None:
    report = run_comparison(repository, operation, "cpu", "17", interpret=True)
    check(report, operation, ALL_CASES[operation])


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ALL_CASES)
def test_compiled_kernels_equal_the_reference(operation: str, repository: Path, cuda: torch.device) -> None:
    # The dense row of this size is longer than a piece.
    report = run_comparison(repository, operation, str(cuda), "700", interpret=False)
    assert not report["interpreted"]
    check(report, operation, ALL_CASES[operation])


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ALL_CASES)
def test_vendor_equals_the_reference_on_cuda(operation: str, cuda: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(90, 70, generator=generator) * (torch.rand(90, 70, generator=generator) < 0.1)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.float16, torch.bfloat16):
        if operation == "sddmm" and dtype in (torch.float16, torch.bfloat16):
            continue
        matrix = CSR.from_dense(dense.to(dtype).to(cuda))
        left, right = (torch.randn(90, 9), torch.randn(9, 70))
        left, right = left.to(cuda, dtype), right.to(cuda, dtype)
        found, expected = (
            sddmm(matrix, left, right, impl=impl).values  # type: ignore[arg-type]
            if operation == "sddmm"
            else spmv(matrix, right[0], impl=impl)  # type: ignore[arg-type]
            if operation == "spmv"
            else spmm(matrix, right.T, impl=impl)  # type: ignore[arg-type]
            for impl in ("vendor", "reference")
        )
        # Both round partial sums, in different orders.
        relative, absolute = (2e-2, 5e-2) if dtype.itemsize == 2 else (1e-4, 1e-2)
        torch.testing.assert_close(found, expected, rtol=relative, atol=absolute)


def test_complex_numbers_have_no_kernels() -> None:
    pytest.importorskip("triton")
    matrix = CSR.from_dense(torch.eye(3, dtype=torch.complex64))
    with pytest.raises(ImplementationError, match=r"not support torch\.complex64"):
        spmm(matrix, torch.ones(3, 2), impl="triton")
