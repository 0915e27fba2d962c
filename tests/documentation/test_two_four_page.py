"""The page about 2:4 layers: its example runs, its figures are those of the results, its links lead on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/two-four.md").read_text()


def test_example_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "two-four.md", "exec"), {})
    assert (tmp_path / "model.safetensors").is_file()


def test_links_lead_somewhere(page: str, repository: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert len(links) >= 4
    assert [link for link in links if not (repository / "docs" / link).exists()] == []


@pytest.mark.parametrize(
    ("file", "name"), [("docs/measured.md", "nm-layers"), ("docs/two-four.md", "nm-layers-detail")]
)
def test_speed_table_is_that_of_the_results(file: str, name: str, repository: Path) -> None:
    text = (repository / file).read_text()
    (block,) = re.findall(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, flags=re.DOTALL)
    cases = json.loads((repository / "benchmarks/results/nm_linear-cuda.json").read_text())["cases"]
    found = {
        (row["out"], row["columns"], row["rows"]): row
        for row in cases
        if row["dtype"] == "bfloat16" and row["model"] != "odd"
    }
    lines = [line for line in block.split("**float16**")[0].splitlines() if line.startswith("|")]
    counts = [int(cell.replace(",", "")) for cell in lines[0].strip("|").split("|")[1:]]
    compared = 0
    for line in lines[2:]:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        out, columns = map(int, name.split(" x "))
        for count, cell in zip(counts, cells, strict=True):
            row = found.get((out, columns, count))
            if row is None:
                assert cell == ""
            elif row["method"] == "dense":
                assert cell == "dense"
            else:
                assert cell == f"{row['over_dense']['median']:.2f}"
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("file", ["docs/measured.md", "docs/two-four.md"])
def test_accuracy_table_is_that_of_the_results(file: str, repository: Path) -> None:
    text = (repository / file).read_text()
    (block,) = re.findall(r"<!-- nm-accuracy:begin -->\n(.*?)<!-- nm-accuracy:end -->", text, flags=re.DOTALL)
    cases = json.loads((repository / "benchmarks/results/pruning-accuracy.json").read_text())["cases"]
    rows = {(case["model"], case["pattern"]): case["rows"] for case in cases}
    for name in ("SparseGPT", "Wanda", "SR-STE"):
        (line,) = re.findall(rf"^\| {name} \|(.*)\|$", block, flags=re.MULTILINE)
        expected = [
            rows[model, pattern][name]["accuracy"]
            for model in ("transformer", "convnet")
            for pattern in ("2:4", "1:4")
        ]
        cells = [cell.strip() for cell in line.split("|")]
        assert cells == [f"{100 * one['mean']:.1f} ± {100 * one['std']:.1f}" for one in expected]
