"""The demo that compresses the detector, on one frame: rows, resuming and errors."""

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
def test_rows_are_measured_once(repository: Path, kitti_directory: Path, tmp_path: Path) -> None:
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
    # A compressed file of the rows before stands for fine-tuned weights.
    tuned = run_demo(
        repository, *common, "--tuned", str(tmp_path / "2-4+int8.safetensors"), "--rows", "float16"
    )
    assert tuned.returncode == 0, tuned.stderr


def test_fine_tuned_rows_need_their_weights(repository: Path, tmp_path: Path) -> None:
    done = run_demo(repository, "--out", str(tmp_path), "--rows", "2:4 tuned")
    assert done.returncode == 1
    assert "2:4 tuned: --tuned FILE gives the fine-tuned weights" in done.stderr
    dense = repository / "perception/weights/pointpillars-kitti.safetensors"
    done = run_demo(repository, "--out", str(tmp_path), "--tuned", str(dense), "--rows", "2:4 tuned")
    assert done.returncode == 1
    assert "are not 2:4: train them with --masks 2:4" in done.stderr


def test_missing_data_is_named(repository: Path, tmp_path: Path) -> None:
    missing = run_demo(
        repository, "--data", str(tmp_path / "none"), "--out", str(tmp_path), "--rows", "float16"
    )
    assert missing.returncode == 1
    assert missing.stderr.startswith("compress_detector: ")
