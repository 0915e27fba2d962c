"""``demos/fleet.py``: three robots, what they share, and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--folder", "--laps", "2"], []], ids=["folder", "server"])
def test_robots_share_a_yard(repository: Path, tmp_path: Path, options: list[str]) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    done = subprocess.run(
        [sys.executable, repository / "demos/fleet.py", "--out", tmp_path, "--json", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["seen"] >= 30
    assert figures["once"] == figures["seen"]
    assert figures["by_several"] >= 10
    page = Path(figures["page"]).read_text()
    assert "all together" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    if not options:
        assert figures["healing_sent"]["added"] + figures["healing_sent"]["changed"] > 10
        answers = page.split("<h2>What each")[1]
        assert ", by robot-3" in answers
