"""The drive benchmark perceives days in other processes, remembers them and judges three stores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_small_town_is_perceived_and_judged(tmp_path: Path) -> None:
    out = tmp_path / "drive.json"
    command = [sys.executable, "-m", "benchmarks.memory.drive", "--quick", "--json"]
    command += ["--percepts", str(tmp_path / "percepts"), "--out", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=600)
    assert len(list((tmp_path / "percepts").rglob("*.jsonl.gz"))) == 2
    stores = json.loads(out.read_text())["summary"]
    ours, everything = stores["ours"], stores["everything"]
    assert 0 < ours["figures"]["memories"]["mean"] < everything["figures"]["memories"]["mean"]
    assert ours["figures"]["cars_recall"]["mean"] == 1
    assert sum(kind["asked"] for kind in ours["kinds"].values()) > 0
