"""The page about attention patterns: its examples run in turn, its links and pictures are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

LARGEST_PICTURE_BYTES = 60_000


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/attention.md").read_text()


def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == page.count("```") // 2 == 7
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "attention.md", "exec"), names)
    assert (tmp_path / "pattern.png").is_file()
    # What the comments in the examples say of the results.
    assert names["from_token_mask"](names["allowed"]).describe().used < 0.02
    assert len(names["model"].layers[1].attention.pattern.columns) < 0.25 * 4 * 8 * 8
    without_keys = ~names["here"].to_token_mask().any(dim=1)
    assert bool((names["result"].out[:, :, without_keys] == 0).all())
    assert bool((names["result"].lse[:, :, without_keys] == -torch.inf).all())
    assert all(parameter.grad is not None for parameter in names["gate"].parameters())
    assert all(parameter.grad is None for parameter in names["layers"][0].attention.q.parameters())


def test_links_and_pictures_lead_somewhere(page: str, repository: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page)
    pictures = [link for link in links if link.endswith(".png")]
    assert len(pictures) >= 9
    assert [link for link in links if not (repository / "docs" / link).exists()] == []
    for picture in (repository / "docs/images/attention").iterdir():
        assert f"images/attention/{picture.name}" in pictures, f"{picture.name} is on no page"
        assert picture.stat().st_size < LARGEST_PICTURE_BYTES


def test_measured_tables_have_their_place(page: str) -> None:
    assert (
        len(
            re.findall(
                r"<!-- attention-speedups:begin -->\n.*?<!-- attention-speedups:end -->", page, re.DOTALL
            )
        )
        == 1
    )
