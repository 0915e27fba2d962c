"""The page about compressed weights: its example runs and its links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.publish.blocks import BLOCKS


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


def test_links_lead_somewhere(page: str, repository: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page)
    assert len(links) >= 3
    assert [link for link in links if not (repository / "docs" / link).exists()] == []


def test_the_card_has_the_measured_table(repository: Path) -> None:
    card = (repository / "perception/weights/pointpillars-kitti.md").read_text()
    (table,) = re.findall(r"<!-- compression:begin -->\n(.*?)<!-- compression:end -->", card, flags=re.DOTALL)
    assert table.strip() == BLOCKS["compression"]()
    measured = json.loads((repository / "benchmarks/results/compression-accuracy.json").read_text())["rows"]
    assert table.count("\n| ") == len(measured)
    shipped = measured["2:4+int8 tuned"]
    size = (repository / "perception/weights/pointpillars-kitti-2of4-int8.safetensors").stat().st_size
    assert abs(size - shipped["file_bytes"]) < 100  # it has a longer name inside
    assert " / ".join(f"{value:.1f}" for value in shipped["car_3d"]) in table
