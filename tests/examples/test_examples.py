"""Every example runs from its first cell to its last, says what it should, and is listed with its subject."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: What must be printed, by example; all but QUICK take more than three seconds.
SAYS = {
    "sparse_formats": (r"CSR: .*rows have 1 to \d+ entries", r"<- recommended"),
    "memory_of_a_week": (
        r"360 observations, \d+ kept, 6 after merging",
        r"keys was last seen .* at \(4\.1, 1\.2\)",
    ),
    "fleet": (
        r"charger 20\.\d \['robot-1', 'robot-2'\]",
        r"trolley was last seen .* by robot-2\.",
        r"\{'trolley': \['robot-1'\], 'charger': \['robot-1'\]\}",
        r"the other store has operations of robot-1 up to 3",
    ),
    "detect_scan": (r"Car +0\.\d\d", r"(1[0-9]|[6-9]) of \d+ boxes overlap", r"scan\.png scan\.html"),
    "two_four_transformer": (r"dense: 9\d\.\d%", r"fine-tuned: 9\d\.\d%", r"(\d+) kB became"),
    "two_four_llama": (
        r"dense: (9\d\.\d|100\.0)%",
        r"fine-tuned: (9\d\.\d|100\.0)%",
        r"14 packed layers",
        r"\[3, 6\] continues \[9, 12, 15, 2, 5, 8, 11, 14\]",
        r"the same tokens after saving and loading: True",
    ),
    "graph_network": (
        r"sparse products: \['convs\.0', 'convs\.1'\]",
        r"same results: True",
        r"sparse products: \d+ ms a step, accuracy (9\d\.\d|100\.0)%",
    ),
    "block_attention_gpt": (r"window: 58 blocks of 256", r"window: 2\.\d+ nats"),
}
QUICK = ("sparse_formats", "memory_of_a_week", "fleet", "graph_network")
#: Packages that the plain install does not bring, by example.
NEEDS = {"two_four_llama": "transformers", "graph_network": "torch_geometric"}


@pytest.fixture(autouse=True)
def _as_it_was() -> object:
    """Examples set threads and seeds for themselves."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SAYS]
)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    for pattern in SAYS[name]:
        assert re.search(pattern, said), f"{pattern}\n{said[-3000:]}"


def test_every_example_is_tested_and_listed(repository: Path) -> None:
    there = {path.stem for path in EXAMPLES.glob("*.py")}
    assert there == set(SAYS)
    page = (repository / "docs/examples.md").read_text()
    assert set(re.findall(r"\]\(\.\./examples/(\w+)\.py\)", page)) == there


@pytest.mark.parametrize("name", SAYS)
def test_the_percent_format(name: str) -> None:
    """Cells as editors and jupytext know them: a title first, text in comments, code after ``# %%``."""
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert lines[0] == "# %% [markdown]"
    assert lines[1].startswith("# # ")
    cells = [row for row, line in enumerate(lines) if line.startswith("# %%")]
    assert {lines[row] for row in cells} == {"# %%", "# %% [markdown]"}
    for start, end in zip(cells, [*cells[1:], len(lines)], strict=True):
        text = [line for line in lines[start + 1 : end] if line]
        assert text, f"an empty cell in line {start + 1}"
        assert all(line.startswith("#") for line in text) is (lines[start] == "# %% [markdown]")
    links = re.findall(r"\]\(([^)]+)\)", "\n".join(lines))
    assert [link for link in links if not (EXAMPLES / link).exists()] == []
