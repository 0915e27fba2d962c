from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sparse_core.formats import save_matrix
from sparse_core.formats.generators import convection_diffusion

Run = Callable[..., subprocess.CompletedProcess[str]]
DEMO = "sparse_formats.py"


def test_a_file_is_described_timed_and_drawn(run_demo: Run, tmp_path: Path) -> None:
    path = save_matrix(convection_diffusion(12, dtype=torch.float64), tmp_path / "matrix.mtx")
    done = run_demo(DEMO, str(path), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for text in ("CSR 144 x 144, float64 on cpu", "choice", "torch CSR", "CompactCSR", "all agree"):
        assert text in done.stdout
    assert {file.name for file in tmp_path.iterdir()} == {"matrix.mtx", "spy.png", "timings.png"}


@pytest.mark.slow
def test_json_of_a_generator(run_demo: Run, tmp_path: Path) -> None:
    arguments = (
        "block-sparse:64x96x8",
        "--operation",
        "spmm",
        "--columns",
        "4",
        "--json",
        "--out",
        str(tmp_path),
    )
    done = run_demo(DEMO, *arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["description"]["shape"] == [64, 96]
    assert {"CSR", "BSR", "torch CSR", "dense"} <= set(report["times_ms"])
    assert min(report["times_ms"].values()) > 0
    assert set(report["left_out"]) == {"NM"}
    assert all(Path(picture).is_file() for picture in report["pictures"])


@pytest.mark.slow
def test_what_is_too_large_is_left_out(run_demo: Run, tmp_path: Path) -> None:
    done = run_demo(DEMO, "power-law:3000", "--limit-gib", "0.01", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    left_out = json.loads(done.stdout)["left_out"]
    assert {"dense", "BSR", "NM"} <= set(left_out)
    assert left_out["dense"].startswith("would take 0.0")


def test_what_cannot_be_loaded_is_one_line(run_demo: Run, tmp_path: Path) -> None:
    done = run_demo(DEMO, "nothing.mtx", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "sparse_formats: nothing.mtx: no such file\n"
