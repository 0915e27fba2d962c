"""The examples of docs/merging.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparse_core.merging.recipes.recipe import parse_recipe


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/merging.md").read_text(encoding="utf-8")


def test_examples_run(page: str) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "merging.md", "exec"), names)
    assert names["merged"]["w"].tolist() == pytest.approx([1.05, 2.2, 2.95])
    assert names["robust"]["w"].shape == (3,)
    # Of 0.7 and -0.3 the first has the larger mass, and normalising divides by its weight again.
    added = names["module"].weight.detach() - names["start"]["weight"]
    assert added.flatten().tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)


def test_recipe_is_understood(page: str) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    recipe = parse_recipe(yaml.safe_load(block))
    assert recipe.method.name == "ties"
    assert recipe.notes == ()
    assert [entry.path for entry in recipe.models] == ["models/a", "task.safetensors"]
