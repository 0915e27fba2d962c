"""The fast head's kernels against its reference, interpreted and compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from perception.stages.head import fixed_peaks
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).with_name("compare_head.py")
#: Largest difference over the largest value, by type: a rounding of the result or of a hidden layer.
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def check(report: dict[str, Any]) -> None:
    for name, error in report["up"].items():
        assert error <= TOLERANCES[name.split()[0]], ("up", name, error)
    for name, errors in report["layers"].items():
        tolerance = TOLERANCES[name.split()[0]]
        assert max(errors["heat"], errors["boxes"], errors["yaw"]) <= tolerance, (name, errors)
        assert errors["worst yaw"] <= 50 * tolerance, (name, errors)
    for name, equal in report["peaks"].items():
        assert all(equal.values()), (name, equal)


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret)
    counts = (len(report["up"]), len(report["layers"]), len(report["peaks"]))
    assert counts == ((6, 6, 12) if interpret else (15, 15, 17))
    check(report)
    assert interpret or report["graph"]["replays"]


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes CPU tensors")
def test_compiled_kernels_refuse_cpu_tensors() -> None:
    pytest.importorskip("triton")
    with pytest.raises(ImplementationError, match="needs CUDA tensors, got cpu"):
        fixed_peaks(torch.zeros(1, 1, 2, 2), 1, impl="triton")
