"""The demo that compresses the detector, on one frame: rows, resuming and errors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
DEMO = "compress_detector.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparse_core.nm.pruning.sparsegpt.CalibrationWarning")  # one scan
def test_rows_are_measured_once(run_demo: Run, kitti_directory: Path, tmp_path: Path) -> None:
    common = ["--data", str(kitti_directory), "--out", str(tmp_path), "--limit", "1", "--calibration", "1"]
    first = run_demo(DEMO, *common, "--rows", "float16", "2:4+int8", "--json")
    assert first.returncode == 0, first.stderr
    rows = json.loads(first.stdout)["rows"]
    assert rows["2:4+int8"]["file_bytes"] < 0.35 * rows["float16"]["file_bytes"]
    assert (tmp_path / rows["2:4+int8"]["file"]).stat().st_size == rows["2:4+int8"]["file_bytes"]
    written = (tmp_path / "float16.safetensors").stat().st_mtime_ns
    again = run_demo(DEMO, *common, "--rows", "float16", "int8")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "float16.safetensors").stat().st_mtime_ns == written
    assert "| 2:4+int8 |" in again.stdout
    # A compressed file of the rows before stands for fine-tuned weights.
    tuned = run_demo(DEMO, *common, "--tuned", str(tmp_path / "2-4+int8.safetensors"), "--rows", "float16")
    assert tuned.returncode == 0, tuned.stderr


def test_fine_tuned_rows_need_their_weights(run_demo: Run, repository: Path, tmp_path: Path) -> None:
    done = run_demo(DEMO, "--out", str(tmp_path), "--rows", "2:4 tuned")
    assert done.returncode == 1
    assert "2:4 tuned: pass the fine-tuned weights with --tuned FILE" in done.stderr
    dense = repository / "perception/weights/pointpillars-kitti.safetensors"
    done = run_demo(DEMO, "--out", str(tmp_path), "--tuned", str(dense), "--rows", "2:4 tuned")
    assert done.returncode == 1
    assert "are not 2:4; train them with --masks 2:4" in done.stderr


def test_missing_data_is_named(run_demo: Run, tmp_path: Path) -> None:
    missing = run_demo(DEMO, "--data", str(tmp_path / "none"), "--out", str(tmp_path), "--rows", "float16")
    assert missing.returncode == 1
    assert missing.stderr.startswith("compress_detector: ")
