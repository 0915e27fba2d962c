"""docs/install.md: its Python runs, and it names every extra."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib


def test_the_block_runs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    (block,) = re.findall(r"```python\n(.*?)```", (repository / "docs/install.md").read_text(), re.DOTALL)
    exec(compile(block, "install.md", "exec"), {})
    found, known = re.findall(r"\d+", capsys.readouterr().out)
    assert int(found) > 8
    assert int(known) == 14


def test_every_extra_is_named(repository: Path) -> None:
    page = (repository / "docs/install.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and "perceive demo" not in line]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    # What only a developer's environment takes is built from source, or tests.
    assert set(project["optional-dependencies"]) - named == {"oracles"}
