from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.formats import CSR
from sparse_core.linalg import triangular_solve

SCRIPT = Path(__file__).with_name("compare_triangular.py")
TOLERANCE = {"torch.float64": 1e-13, "torch.float32": 1e-5, "torch.float16": 2e-3}


def check(report: dict[str, Any]) -> None:
    assert len(report["cases"]) == 9
    for name, case in report["cases"].items():
        assert case["difference"] < TOLERANCE[case["dtype"]], (name, case)
        assert case["repeatable"], name
    # The paths that ran: wide levels, runs of narrow ones, and both.
    cases = report["cases"]
    assert cases["wide"]["wide"] > 0
    assert cases["stencil"]["narrow"] > 0
    assert cases["arrow"]["wide"] > 0
    assert cases["arrow"]["narrow"] > 0


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(5, 40))
    check(report)
    assert interpret or report["graph"]


@pytest.mark.gpu
@pytest.mark.parametrize("transpose", [False, True])
def test_cusparse_equals_the_reference(cuda: torch.device, transpose: bool) -> None:
    matrix = CSR.from_dense(torch.rand(50, 50, dtype=torch.float64) + 50 * torch.eye(50)).to(cuda)
    for shape in [(50,), (50, 3)]:
        b = torch.rand(shape, dtype=torch.float64, device=cuda)
        found = triangular_solve(matrix, b, transpose=transpose, impl="vendor")
        expected = triangular_solve(matrix, b, transpose=transpose, impl="reference")
        torch.testing.assert_close(found, expected)
