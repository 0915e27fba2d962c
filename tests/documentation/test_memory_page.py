"""The example of docs/memory.md runs and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/memory.md").read_text()


def test_example_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "memory.md", "exec"), names)
    printed = capsys.readouterr().out
    stored, offered = map(int, re.findall(r"(\d+) of (\d+) kept", printed)[0])
    assert offered == 3601
    assert 1 < stored < 36, "a parked hour shrinks by 100"
    assert names["kept"][1800].id is not None, "and the one event in it stays"
    assert names["similar"][0].memory.label == "cup"
    assert names["hit"].memory.caption.startswith("charger")
    assert "cup" in printed
