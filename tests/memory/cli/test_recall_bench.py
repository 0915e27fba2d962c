"""``recall bench``: it measures what it says, and names the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.cli import bench

Recall = Callable[..., Any]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SINGLE_S", 0.05)
    monkeypatch.setattr(bench, "_QUERIES", 20)


def test_json(recall: Recall, tmp_path: Path) -> None:
    done = recall("bench", "--count", 1500, "--dim", 16, "--folder", tmp_path, "--json")
    assert done.status == 0, done.remarks
    assert done.json["settings"] == {"memories": 1500, "dim": 16, "seed": 0}
    timings = {entry["name"]: entry for entry in done.json["timings"]}
    assert len(timings) == 6
    inserts = [entry for name, entry in timings.items() if name.startswith("durable insert")]
    assert sum(entry["count"] for entry in inserts) == 1500
    assert timings["query: similar"]["recall"] > 0.9
    assert all(entry["per_s"] > 0 and entry["p99_ms"] >= entry["median_ms"] > 0 for entry in timings.values())
    assert "cores" in done.json["machine"]["processor"]
    assert list(tmp_path.iterdir()) == []


def test_table(recall: Recall) -> None:
    done = recall("bench", "--count", 1000, "--dim", 8)
    for text in ("durable insert", "recall@10", "processor:", "file system:", "One short run"):
        assert text in done.output


def test_too_few(recall: Recall) -> None:
    assert "--count must be at least 1000" in recall("bench", "--count", 10).remarks


def test_the_file_system(tmp_path: Path) -> None:
    kinds = {line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    assert bench.describe_machine(tmp_path)["file system"].split()[0] in kinds
