"""The examples of docs/attention.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/attention.md").read_text()


def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == page.count("```") // 2 == 6
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "attention.md", "exec"), names)
    assert (tmp_path / "pattern.png").is_file()
    # Claims of the comments in the examples.
    assert names["from_token_mask"](names["allowed"]).describe().used < 0.02
    without_keys = ~names["here"].to_token_mask().any(dim=1)
    assert bool((names["result"].out[:, :, without_keys] == 0).all())
    assert bool((names["result"].lse[:, :, without_keys] == -torch.inf).all())
    assert all(parameter.grad is not None for parameter in names["gate"].parameters())
    assert all(parameter.grad is None for parameter in names["layers"][0].attention.q.parameters())
