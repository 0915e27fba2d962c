from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import run_script

from sparse_core.conv.grid import (
    FixedGrid,
    GridLevel,
    TableRequest,
    neighbour_tables,
    pyramid,
    word_count,
)

FOLDER = Path(__file__).parent


def check(report: dict[str, Any]) -> None:
    assert len(report["cases"]) == 8
    for name, case in report["cases"].items():
        assert all(case["grids"] + case["hashes"] + case["tables"]), (name, case)
        # One launch writes three further levels, or eight tables.
        extra = {"mixed": 1, "another kernel": 2}.get(name, 0)
        assert case["launches"] == [2 + extra, math.ceil(len(case["tables"]) / 8)], (name, case)
        assert (max(case["active"]) > 0) == (name != "empty"), name
    assert sum(len(case["tables"]) for case in report["cases"].values()) == 3 * 9 + 3


def test_interpreted_grids_equal_the_reference(repository: Path) -> None:
    report = run_script(FOLDER / "compare_grids.py", repository, "cpu", "1", interpret=True)
    assert report["interpreted"]
    check(report)


@pytest.mark.gpu
def test_compiled_grids_equal_the_reference(repository: Path, cuda: torch.device) -> None:
    for scale in ("1", "12"):
        report = run_script(FOLDER / "compare_grids.py", repository, str(cuda), scale, interpret=False)
        assert not report["interpreted"]
        check(report)


@pytest.mark.slow
def test_kernels_compile_without_a_gpu(repository: Path) -> None:
    report = run_script(FOLDER / "compile_grids.py", repository, interpret=False)
    assert set(report) == {
        "_insert_kernel",
        "_number_kernel",
        "_set_kernel",
        "_strided_kernel",
        "_tables_kernel",
        "bits_kernel",
        "rows_kernel",
        "window_kernel",
    }
    assert min(report.values()) >= 2


@pytest.mark.gpu
def test_a_graph_serves_every_frame(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    shape, room = (496, 432), [9000, 9000, 5000, 2000]
    levels = [GridLevel(), GridLevel(dilating=False), GridLevel()]
    bits = torch.zeros(word_count(shape, 2), dtype=torch.int32, device=cuda)

    def frame(impl: Any) -> tuple[list[FixedGrid], list[torch.Tensor]]:
        grids = pyramid(bits, shape, 2, room, levels, impl=impl)
        requests = [TableRequest(grid, grid, (3, 3), (1, 1), (1, 1)) for grid in grids]
        return grids, neighbour_tables(requests, impl=impl)

    frame("triton")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grids, tables = frame("triton")
    for seed in range(3):
        generator = torch.Generator(cuda).manual_seed(seed)
        ones = torch.rand(2, 496, 448, device=cuda, generator=generator) < 0.01 * seed
        ones[:, :, 432:] = False
        weights = 1 << torch.arange(32, device=cuda)
        packed = (ones.view(-1, 32) * weights).sum(1)
        bits.copy_(torch.where(packed >= 2**31, packed - 2**32, packed))
        graph.replay()
        expected, wanted = frame("reference")
        for grid, other in zip(grids, expected, strict=True):
            assert torch.equal(grid.words, other.words)
            assert torch.equal(grid.cells, other.cells)
            assert torch.equal(grid.active, other.active)
        assert all(torch.equal(*pair) for pair in zip(tables, wanted, strict=True))
