"""The Triton kernels give what the reference gives: interpreted here, compiled on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import run_script

from memory.index.cuda import scan_top
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).parent / "compare_memory_cuda.py"


def check(report: dict[str, Any]) -> None:
    wrong = {name: case for name, case in report.items() if not case["same"] or case.get("error", 0.0) > 1e-5}
    assert not wrong
    assert report["scan, one query"]["found"] == 100
    assert report["scan, all removed"]["found"] == 0
    assert report["cells"]["found"] > 300
    assert report["cells, copies"]["found"] == 300
    assert report["cells, overflow"]["overflow"] > 0


def test_interpreted(repository: Path) -> None:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("the kernels are compiled here")
    check(run_script(SCRIPT, repository, interpret=True))


@pytest.mark.gpu
def test_compiled(repository: Path, cuda: torch.device) -> None:
    report = run_script(SCRIPT, repository, interpret=False)
    check(report)
    assert report["scan, a million rows"]["found"] == 4096
    assert report["cells, a million rows, 64"]["found"] > 64 * 400


def test_triton_needs_a_gpu() -> None:
    pytest.importorskip("triton")
    codes, coordinates = torch.zeros((4, 16), dtype=torch.int32), torch.zeros((1, 256)).half()
    with pytest.raises(ImplementationError, match="CUDA"):
        scan_top(codes, coordinates, 1, dim=8, impl="triton")
    with pytest.raises(ImplementationError, match="vendor"):
        scan_top(codes, coordinates, 1, dim=8, impl="vendor")
