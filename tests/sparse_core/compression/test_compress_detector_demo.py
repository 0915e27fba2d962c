"""The demo that compresses the detector, on one frame: rows, resuming, latency and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_demo(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(repository / "demos" / "compress_detector.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"},
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_rows_are_measured_once_and_timed_apart(
    repository: Path, kitti_directory: Path, tmp_path: Path
) -> None:
    early = run_demo(repository, "--latency", "--out", str(tmp_path))
    assert early.returncode == 1
    assert "measure them first" in early.stderr
    common = ["--data", str(kitti_directory), "--out", str(tmp_path), "--limit", "1", "--calibration", "1"]
    first = run_demo(repository, *common, "--rows", "float16", "2:4+int8", "--json")
    assert first.returncode == 0, first.stderr
    rows = json.loads(first.stdout)["rows"]
    assert rows["2:4+int8"]["file_bytes"] < 0.35 * rows["float16"]["file_bytes"]
    assert (tmp_path / rows["2:4+int8"]["file"]).stat().st_size == rows["2:4+int8"]["file_bytes"]
    written = (tmp_path / "float16.safetensors").stat().st_mtime_ns
    again = run_demo(repository, *common, "--rows", "float16", "int8")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "float16.safetensors").stat().st_mtime_ns == written
    assert "| 2:4+int8 |" in again.stdout
    timed = run_demo(repository, *common, "--rows", "float16", "int8", "--latency", "--repeats", "1")
    assert timed.returncode == 0, timed.stderr
    assert "ms a frame" in (tmp_path / "results.md").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["rows"]["int8"]["frame_ms"] > 0


def test_missing_data_is_named(repository: Path, tmp_path: Path) -> None:
    missing = run_demo(
        repository, "--data", str(tmp_path / "none"), "--out", str(tmp_path), "--rows", "float16"
    )
    assert missing.returncode == 1
    assert missing.stderr.startswith("compress_detector: ")
