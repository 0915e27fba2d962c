"""The page and the demo about dynamic sparsity run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_examples_run(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (repository / "docs/dynamic-sparsity.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "dynamic-sparsity.md", "exec"), {})
    printed = capsys.readouterr().out
    # Counts are rounded up, as in the paper's program.
    assert "sparsity of the selected layers: 89.98%" in printed
    assert printed.count("of the connections exchanged") == 7


@pytest.mark.slow
def test_the_demo_trains_all_four_and_draws(repository: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    done = subprocess.run(
        [sys.executable, "demos/dynamic_sparsity.py", "--steps", "40", "--seeds", "1", "--json",
         "--threads", "1", "--out", str(picture)],
        cwd=repository, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["methods"]) == {"dense", "static", "set", "rigl"}
    counts = {name: row["connections"] for name, row in found["methods"].items()}
    assert counts["static"] == counts["set"] == counts["rigl"] < 0.2 * counts["dense"]
    assert picture.read_bytes()[:4] == b"\x89PNG"
