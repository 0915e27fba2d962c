"""The example of docs/memory.md runs and does what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.cli import main as recall


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


def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page queries memory 12, so a dozen are added after the first command, which creates the store."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    first, *others = block.splitlines()
    assert recall(shlex.split(first)[1:]) == 0
    vectors = np.random.default_rng(0).normal(size=(12, 64))
    with MemoryStore.open("STORE") as store:
        store.add([Memory(time_ns=row, label="cup", embedding=vector) for row, vector in enumerate(vectors)])
    assert len(others) == 6
    for line in others:
        program, *words = shlex.split(line, comments=True)
        assert (program, recall(words)) == ("recall", 0), line
