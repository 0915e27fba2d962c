"""The commands of docs/own-data.md run on a simulated warehouse."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from perception import Detector
from perception.boxes import rotated_iou_bev
from perception.cli import main as perceive
from perception.data import open_data_set

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/own-data.md").read_text(encoding="utf-8")
(COMMANDS,) = (block.splitlines() for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL))
#: Longest run of the page on two CPU cores.
LONGEST_S = 15 * 60


def run(line: str) -> None:
    """Run one command of the page in the current folder."""
    words = shlex.split(line)
    if words[0] == "python":
        subprocess.run([sys.executable, ROOT / words[1], *words[2:]], check=True, env=_environment())
    else:
        assert (words[0], perceive(words[1:])) == ("perceive", 0), line


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_first_commands_on_few_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("open3d", reason="the warehouse is made by ray casting")
    monkeypatch.chdir(tmp_path)
    make, *others = COMMANDS
    assert "--frames 20" in make
    run(make.replace("--frames 20", "--frames 3"))
    for line in others[:2]:
        run(line)
    data_set = open_data_set("warehouse")
    assert data_set.classes == ("pallet", "forklift")
    # Floor and walls in metres, from a sensor at 2.1 m.
    points = data_set[0].points
    assert np.median(points[points[:, 2] < -1.9, 2]) == pytest.approx(-2.1, abs=0.02)
    assert np.abs(points[:, 0]).max() == pytest.approx(16, abs=0.2)


@pytest.mark.slow
@pytest.mark.timeout(2 * LONGEST_S)
def test_the_page_from_scans_to_a_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("open3d", reason="the warehouse is made by ray casting")
    monkeypatch.chdir(tmp_path)
    started_s = time.process_time()
    for line in COMMANDS:
        run(line)
    assert time.process_time() - started_s < 2 * LONGEST_S
    for name in ("run/curves.png", "run/weights.safetensors", "found/000018.png", "found/detections.jsonl"):
        assert Path(name).stat().st_size > 1000
    detector, found, labelled, wrong = Detector.from_pretrained("run/weights.safetensors"), 0, 0, 0
    for frame in open_data_set("warehouse", "val"):
        seen = detector(frame.cloud).filter(min_score=0.3, labels=["forklift"])
        truth = torch.from_numpy(frame.boxes[[name == "forklift" for name in frame.labels]])
        overlap = rotated_iou_bev(truth, torch.from_numpy(np.ascontiguousarray(seen.boxes)))
        hit = overlap.numpy() > 0.5
        labelled, found = labelled + len(truth), found + int(hit.any(axis=1).sum())
        wrong += int((~hit.any(axis=0)).sum())
    assert labelled >= 10
    assert found >= 0.75 * labelled
    assert wrong <= labelled / 2
