"""The example and commands of docs/budget.md run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from perception.budget import default_levels
from perception.cli import main
from sparse_core.dynamic import energy


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/budget.md").read_text()


def test_example_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    block = block.replace("budget_s=0.5", "budget_s=60.0")
    names: dict[str, object] = {}
    exec(compile(block, "budget.md", "exec"), names)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("all ")
    assert all(repr(level.name) in first for level in default_levels(fast=False))
    assert "'near'" in second


def test_command_writes_the_level(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, lines = re.findall(r"```bash\n(.*?)\n```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans").mkdir()
    random = np.random.default_rng(0)
    for number in range(2):
        points = random.uniform([0, -20, -1.8, 0], [50, 20, 0.5, 1], (500, 4)).astype("<f4")
        points.tofile(tmp_path / "scans" / f"{number}.bin")
    program, *arguments = shlex.split(command)
    assert program == "perceive"
    assert main([*arguments, "--no-pictures"]) == 0
    assert "levels within 60 ms" in capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "out/detections.jsonl").read_text().splitlines()]
    assert [record["budget_ms"] for record in records] == [60, 60]
    assert {record["level"] for record in records} <= {level.name for level in default_levels(fast=False)}

    # No energy counter can be read here.
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    for line in lines.splitlines():
        assert main([*shlex.split(line, comments=True)[1:], "--overwrite"]) == 2
        assert "has no intel-rapl:*/energy_uj" in capsys.readouterr().err
