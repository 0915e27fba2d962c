from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.conv import build_table

SCRIPT = Path(__file__).with_name("compare_implementations.py")
#: Facts of a case that must hold.
AGREEMENTS = ("coordinates", "input rows", "lookup", "order", "submanifold", "strided")


def check(report: dict[str, Any]) -> None:
    assert len(report["cases"]) == 7
    for name, case in report["cases"].items():
        assert all(case[fact] for fact in AGREEMENTS), (name, case)
        # The path that ran: nothing to hash without coordinates, kernels in every other case.
        assert case["hashed"] == (name != "no coordinate"), name
        assert (case["launches"] > 3) == (name != "no coordinate"), (name, case)
    assert report["cases"]["single key"]["rows"] == 1


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(600, 200_000))
    check(report)


@pytest.mark.gpu
def test_auto_hashes_on_cuda(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    coordinates = torch.zeros(5, 3, dtype=torch.int32, device=cuda)
    assert build_table(coordinates, (4, 4)).slots is not None
    assert build_table(coordinates, (4, 4), impl="reference").slots is None


@pytest.mark.gpu
def test_capacity_overflow_on_cuda(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    coordinates = torch.cartesian_prod(torch.arange(2), torch.arange(8), torch.arange(8)).to(cuda)
    with pytest.warns(UserWarning, match="dropped 118 of 128 coordinates"):
        table = build_table(coordinates, (8, 8), capacity=10, impl="triton")
    assert table.lookup(coordinates).tolist() == [*range(10), *[-1] * 118]
