"""The examples of docs/merging.md run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from sparse_core.merging.cli import main as merge
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


def test_recipe_is_understood(page: str) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    recipe = parse_recipe(yaml.safe_load(block))
    assert recipe.method.name == "ties"
    assert recipe.notes == ()
    assert [entry.path for entry in recipe.models] == ["models/a", "task.safetensors"]


def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last command writes the task vector that the recipe of the page names, so it runs first."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    for name in ("base", "tuned", "models/base", "models/a"):
        Path(name).mkdir(parents=True)
        numbers = torch.randn(32, 32, generator=generator)
        save_file({"model.layers.0.mlp.weight": numbers}, f"{name}/model.safetensors")
    Path("recipe.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)[0])
    (block,) = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    *recipes, vector = block.splitlines()
    assert len(recipes) == 2
    for line in (vector, *reversed(recipes)):
        program, *words = shlex.split(line, comments=True)
        assert (program, merge(words)) == ("sparsight-merge", 0), line
    assert Path("merged/model.safetensors").is_file()
