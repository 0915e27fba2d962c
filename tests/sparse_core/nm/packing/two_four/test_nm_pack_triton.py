"""The kernels that prune and pack against the reference, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import run_script

SCRIPT = Path(__file__).with_name("compare_pack.py")


def check(report: dict[str, Any], *, interpreted: bool, cases: int) -> None:
    assert report["interpreted"] is interpreted
    assert len(report["cases"]) == cases
    wrong = [
        f"{name}: {part}"
        for name, parts in report["cases"].items()
        for part, right in parts.items()
        if not right
    ]
    assert wrong == []
    assert report["nan"]


def test_interpreted_kernels_agree_with_the_reference(repository: Path) -> None:
    # The kernel for rows takes four metadata tiles of 32 columns at once where it can.
    report = run_script(SCRIPT, repository, "cpu", "128x64", "64x128", interpret=True)
    check(report, interpreted=True, cases=5)


@pytest.mark.gpu
def test_compiled_kernels_agree_with_the_reference(cuda: torch.device, repository: Path) -> None:
    report = run_script(
        SCRIPT, repository, "cuda", "64x64", "128x64", "64x192", "64x128", "1024x2048", interpret=False
    )
    check(report, interpreted=False, cases=13)
