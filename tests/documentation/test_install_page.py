"""The Python block of docs/install.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_block_runs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    (block,) = re.findall(r"```python\n(.*?)```", (repository / "docs/install.md").read_text(), re.DOTALL)
    exec(compile(block, "install.md", "exec"), {})
    found, known = re.findall(r"\d+", capsys.readouterr().out)
    assert int(found) > 8
    assert int(known) == 14
