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


def test_both_pages_and_the_package_name_the_same_versions_of_python(repository: Path) -> None:
    """What the packages run on, and what all tests, which ``make`` runs, are written for."""
    readme, page = ((repository / name).read_text() for name in ("README.md", "docs/install.md"))
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    found = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["project"]["requires-python"])
    assert found is not None
    lowest, above = map(int, found.groups())
    assert f"Python 3.{lowest} to 3.{above - 1}:" in " ".join(readme.split())
    assert f"\nPython 3.{lowest} to 3.{above - 1} and `pip`" in page
    tried = re.findall(r"^\| 3\.(\d+) \| .* \| (.*) \|$", page, re.MULTILINE)
    assert sorted(int(minor) for minor, _ in tried) == list(range(lowest, above))
    (tested,) = (minor for minor, ran in tried if ran == "all tests")
    assert f"Python 3.{tested}, on which all tests run" in readme
    assert f"`make setup` and `make test` are for developing, on 3.{tested}:" in page
    assert project["tool"]["mypy"]["python_version"] == f"3.{tested}"
