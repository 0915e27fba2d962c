"""The Triton block products against plain torch: interpreted here, compiled where there is a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from triton_scripts import run_script

SCRIPT = Path(__file__).with_name("compare_blocks.py")


def _check(report: dict, count: int, *, interpreted: bool) -> None:
    assert report["interpreted"] is interpreted
    assert {name: text for name, text in report["cases"].items() if text} == {}
    assert len(report["cases"]) == count


def test_interpreted_block_kernels_equal_plain_torch(repository: Path) -> None:
    _check(run_script(SCRIPT, repository, "cpu", "quick", interpret=True), 14, interpreted=True)


@pytest.mark.slow
def test_interpreted_block_kernels_equal_plain_torch_in_all_types(repository: Path) -> None:
    _check(run_script(SCRIPT, repository, "cpu", interpret=True), 51, interpreted=True)


@pytest.mark.gpu
def test_compiled_block_kernels_equal_plain_torch(repository: Path, cuda: torch.device) -> None:
    _check(run_script(SCRIPT, repository, str(cuda), interpret=False), 68, interpreted=False)
