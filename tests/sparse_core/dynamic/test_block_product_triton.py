"""The Triton block products against plain torch: interpreted here, compiled where there is a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from triton_scripts import run_script

from sparse_core.dynamic.rigl.block_product import block_linear, plan_blocks
from sparse_core.dynamic.rigl.grid import plan_grid, random_cells
from sparse_core.errors import ImplementationError

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


def test_named_implementations_never_fall_back() -> None:
    pytest.importorskip("triton")
    grid = plan_grid(16, 16, density=1.0, structure="block", block_size=16)
    plan = plan_blocks(random_cells(grid, torch.Generator().manual_seed(0)), grid)
    x, values = torch.randn(2, 16), torch.randn(grid.values_shape)
    for impl in ("triton", "vendor"):
        with pytest.raises(ImplementationError, match=r"vendor|CUDA"):
            block_linear(x, values, plan, impl=impl)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="impl must be one of"):
        block_linear(x, values, plan, impl="fast")  # type: ignore[arg-type]
