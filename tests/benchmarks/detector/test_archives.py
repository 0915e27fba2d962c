"""The benchmark of archives: a short run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.results import published_text
from benchmarks.publish.archives import BLOCKS


@pytest.mark.slow
def test_a_short_run(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "archives.json"
    arguments = ["--quick", "--scans", "4", "--workers", "1", "--threads", "1", "--out", str(out)]
    assert load("detector.archives").main(arguments) == 0
    assert "records equal: True" in capsys.readouterr().out
    values = json.loads(out.read_text())
    assert [case["side"] for case in values["cases"]] == ["one process", "local 1"]
    assert values["cases"][0]["times"] == 1
    assert values["cases"][1]["scans_per_s"] > 0
    assert '"records":' not in published_text(values)
    assert set(BLOCKS) == {"archives-cpu", "archives-cuda"}
