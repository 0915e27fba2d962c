"""Kernels of near cells against their reference, interpreted and compiled, and the neck over lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled, run_script

from perception.stages.neck import near_lists
from sparse_core.conv.grid import grid_from_cells
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).with_name("compare_near.py")


def check(report: dict[str, Any]) -> None:
    for part in ("lists", "necks"):
        for name, equal in report[part].items():
            assert all(equal.values()), (part, name, equal)
    assert all(report["restoring"].values()), report["restoring"]


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret)
    assert (len(report["lists"]), len(report["necks"])) == ((4, 1) if interpret else (5, 5))
    check(report)
    assert interpret or report["graph"]["replays"]


@pytest.mark.slow
def test_kernels_compile_for_a_gpu(repository: Path) -> None:
    compiled = run_script(SCRIPT.with_name("compile_near.py"), repository, interpret=False)
    # The lists of both necks; cells of an empty scene are restored in the same launch.
    assert compiled["lists_kernel"] == 2
    assert compiled["tables_kernel"] == 2
    assert min(compiled[name] for name in ("up_kernel", "heat_kernel", "convolve_kernel")) >= 3


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes CPU tensors")
def test_compiled_kernels_refuse_cpu_tensors() -> None:
    pytest.importorskip("triton")
    first = grid_from_cells(torch.zeros(1, dtype=torch.int32), (4, 5), 1, 3)
    with pytest.raises(ImplementationError, match="needs CUDA tensors, got cpu"):
        near_lists(first, [3], impl="triton")
