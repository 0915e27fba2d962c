from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.errors import ImplementationError
from sparse_core.formats import CSR
from sparse_core.linalg import gauss_seidel

SCRIPT = Path(__file__).with_name("compare_relaxation.py")


def check(report: dict[str, Any]) -> None:
    cases = report["cases"]
    assert cases["chain, two colours"]["colours"] == 2
    assert cases["random, many colours"]["colours"] > 2
    for name, case in cases.items():
        assert case["difference"] < (1e-14 if name == "float64" else 1e-5), (name, case)
        assert case["repeatable"], name


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(60, 20_000))
    check(report)


def test_triton_on_a_cpu_is_refused() -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET"):
        pytest.skip("the interpreter runs on a CPU")
    with pytest.raises(ImplementationError, match="needs CUDA tensors"):
        gauss_seidel(CSR.from_dense(torch.eye(3)), impl="triton")


def test_there_is_no_vendor() -> None:
    with pytest.raises(ImplementationError, match="no vendor"):
        gauss_seidel(CSR.from_dense(torch.eye(3)), impl="vendor")
