"""The page about compressed weights: its example runs and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/compression.md").read_text()


def test_example_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "compression.md", "exec"), names)
    assert (tmp_path / "model.safetensors").is_file()
    assert names["answer"].shape == (2, 64)


def test_table_and_links_are_there(page: str, repository: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page)
    assert len(links) >= 3
    assert [link for link in links if not (repository / "docs" / link).exists()] == []
    (table,) = re.findall(r"<!-- compression:begin -->\n(.*?)<!-- compression:end -->", page, flags=re.DOTALL)
    assert table.count("\n| ") >= 9
