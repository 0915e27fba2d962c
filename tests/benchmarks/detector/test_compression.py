"""The benchmark of compressed files: its products are the layers', and what it writes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.publish import text as published_text
from benchmarks.publish.blocks import BLOCKS


@pytest.fixture
def bench() -> ModuleType:
    return importlib.import_module("benchmarks.detector.compression")


@pytest.mark.parametrize(("kernel", "padding"), [(1, 0), (3, 1)])
def test_rows_times_the_weight_are_the_convolution(bench: ModuleType, kernel: int, padding: int) -> None:
    layer = nn.Conv2d(8, 4, kernel, padding=padding, dtype=torch.float64)
    x = torch.randn(2, 8, 5, 6, dtype=torch.float64)
    rows = bench._rows_of(layer, x)
    product = F.linear(rows, layer.weight.permute(0, 2, 3, 1).reshape(4, -1), layer.bias)
    assert torch.allclose(product, layer(x).permute(0, 2, 3, 1).reshape(-1, 4))


def test_without_results_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_text, "load_result", lambda name: None)
    assert BLOCKS["compression"]() == ""


@pytest.mark.slow
def test_files_are_loaded_and_run(bench: ModuleType, kitti_directory: Path, tmp_path: Path) -> None:
    arguments = ["--quick", "--rows", "float16", "2:4+int8", "--loads", "1", "--data", str(kitti_directory)]
    assert bench.main([*arguments, "--out", str(tmp_path / "out.json")]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert rows["2:4+int8"]["file_bytes"] < 0.35 * rows["float16"]["file_bytes"]
    for row in rows.values():
        assert row["frame"]["count"] == 4
        assert row["load"]["median_ms"] > 0
    with pytest.raises(SystemExit):
        bench.main([*arguments, "--files", str(tmp_path / "none")])
