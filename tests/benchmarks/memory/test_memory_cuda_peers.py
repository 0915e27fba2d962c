"""The comparison with faiss on a GPU runs on a CPU too, through faiss-cpu."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from memory.index import calibration, clustered


def test_result_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(calibration, "QUERIES", 16)
    benchmark = importlib.import_module("benchmarks.memory.memory_cuda_peers")
    monkeypatch.setattr(benchmark, "_PROBES", (4,))
    sentences = tmp_path / "sentences.npy"
    np.save(sentences, clustered(1500, 0, dim=64, centres=20).vectors.astype(np.float16))
    out = tmp_path / "out.json"
    threads = torch.get_num_threads()
    monkeypatch.setattr(benchmark, "_CODES", "PQ8x4")
    arguments = [
        "--quick",
        "--rows",
        "1500",
        "--dim",
        "64",
        "--queries",
        "8",
        "--batches",
        "1",
        "--rounds",
        "1",
        "--threads",
        "1",
    ]
    try:
        assert benchmark.main([*arguments, "--sentences", str(sentences), "--out", str(out)]) == 0
    finally:
        torch.set_num_threads(threads)
    values = json.loads(out.read_text())
    assert values["notes"] == []
    found = {(row["data"], row["side"]): row for row in values["searches"]}
    assert {data for data, _ in found} == {"clustered", "spectrum", "sentences"}
    for data in benchmark.KINDS:
        assert found[data, "ours, aim 0.99"]["recall"] >= 0.95
        assert found[data, "faiss, flat"]["recall"] >= 0.95
        alone, refined = found[data, "faiss, IVF-PQ"], found[data, "faiss, IVF-PQ, refined"]
        assert refined["recall"] >= alone["recall"]
    assert all(row["microseconds"]["median"] > 0 and row["bytes_a_row"] > 0 for row in found.values())
    assert str(tmp_path) not in out.read_text()


def test_without_time_everything_is_left_out_and_said(tmp_path: Path) -> None:
    benchmark = importlib.import_module("benchmarks.memory.memory_cuda_peers")
    threads = torch.get_num_threads()
    try:
        assert benchmark.main(["--quick", "--budget-s", "0", "--out", str(tmp_path / "out.json")]) == 0
    finally:
        torch.set_num_threads(threads)
    values = json.loads((tmp_path / "out.json").read_text())
    assert values["searches"] == []
    assert values["notes"] == [f"left out for time: {kind}, 3000 rows" for kind in benchmark.KINDS]
