"""The benchmark of the memory's index on a GPU runs on a CPU too."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch


def test_result_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    benchmark = importlib.import_module("benchmarks.memory.memory_cuda")
    out = tmp_path / "out.json"
    threads = torch.get_num_threads()
    arguments = ["--quick", "--rows", "3000", "--rounds", "1", "--threads", "1", "--out", str(out)]
    monkeypatch.setattr(benchmark, "_SWEEP", ((2, 100),))
    try:
        assert benchmark.main([*arguments, "--sweep", "--profile"]) == 0
    finally:
        torch.set_num_threads(threads)
    values = json.loads(out.read_text())
    assert values["benchmark"] == "memory_cuda"
    assert values["notes"] == []
    found = {(row["side"], row["batch"]): row for row in values["searches"]}
    sides = (benchmark.SCAN, benchmark.CELLS, benchmark.EXACT)
    assert set(found) == {(side, batch) for side in sides for batch in (1, 16)}
    assert all(row["recall"] > 0.9 and row["microseconds"]["median"] > 0 for row in found.values())
    assert values["bars"]["one_query_ms"]["value"] > 0
    assert values["built"]["bytes_a_row"] > 512 + 64
    assert [(row["probes"], row["rerank"], row["batch"]) for row in values["sweep"]] == [
        (2, 100, 1),
        (2, 100, 16),
    ]
    assert str(tmp_path) not in out.read_text()


def test_results_are_kept_when_a_side_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    benchmark = importlib.import_module("benchmarks.memory.memory_cuda")
    out = tmp_path / "out.json"

    def broken(*given: object) -> None:
        raise RuntimeError("no memory")

    threads = torch.get_num_threads()
    monkeypatch.setattr(benchmark.CudaIndex, "eager", broken)
    try:
        options = ["--quick", "--rows", "500", "--rounds", "1", "--batches", "1", "--out", str(out)]
        assert benchmark.main(options) == 1
    finally:
        torch.set_num_threads(threads)
    values = json.loads(out.read_text())
    assert [row["side"] for row in values["searches"]] == [benchmark.EXACT]
    assert len(values["notes"]) == 2
