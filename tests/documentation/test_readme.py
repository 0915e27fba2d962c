"""README and the first pages: Python runs, links lead, figures are the results'."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
README = "README.md"
#: Pages whose Python stands for itself, and how many blocks they have.
PYTHON = {README: 3, "docs/detect.md": 1, "docs/live.md": 1, "docs/sparse-core.md": 4}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), flags=re.DOTALL)


def test_tables_of_the_readme_are_short() -> None:
    tables = re.findall(r"<!-- ([\w-]+):begin -->\n(.*?)<!--", text_of(README), flags=re.DOTALL)
    assert [name for name, _ in tables] == ["summary-accuracy", "summary-speed", "memory-bars"]
    rows = {name: len(re.findall(r"^\|", table, flags=re.MULTILINE)) - 2 for name, table in tables}
    assert all(1 <= count <= 10 for count in rows.values()), rows


def test_the_picture_moves_and_is_small() -> None:
    (file,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text_of(README))
    assert (ROOT / file).stat().st_size < 1_500_000
    with Image.open(ROOT / file) as picture:
        assert picture.n_frames > 20


@pytest.mark.parametrize("page", PYTHON)
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    rng = np.random.default_rng(0)
    scan = rng.uniform([0, -30, -2, 0], [60, 30, 0, 1], size=(3000, 4)).astype(np.float32)
    scan.tofile(tmp_path / "scan.bin")
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert len(found) == PYTHON[page]
    for block in found:
        exec(compile(block, page, "exec"), {})


def test_links_lead_somewhere(repository: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(README))
    assert len(links) > 8
    missing = [link for link in links if "://" not in link and not (repository / link).exists()]
    assert missing == []


@pytest.mark.parametrize("row", ["sparse", "dense"])
def test_figures_are_those_of_the_results(row: str) -> None:
    variants = json.loads(text_of("benchmarks/results/detector-cpu.json"))["variants"]
    median = variants[row]["time"]["median_ms"]
    assert f"| {median:.0f} |" in text_of("docs/measured.md")


@pytest.mark.parametrize(("device", "digits"), [("cpu", 0), ("cuda", 2)])
def test_the_speeds_tell_what_a_call_takes(device: str, digits: int) -> None:
    rows = json.loads(text_of(f"benchmarks/results/calls-{device}.json"))["calls"]
    call = next(row for row in rows if row["call"] == "detector(points)")
    assert f"| {call['value']:.{digits}f} ms" in text_of(README)


def test_figures_of_whole_frames_on_a_gpu_are_those_of_the_results() -> None:
    text = text_of("docs/measured.md")
    cases, alone = (
        json.loads(text_of(f"benchmarks/results/{name}.json"))["cases"]
        for name in ("frame-cuda", "frame-alone-cuda")
    )
    assert len(cases) == 9
    assert f"one takes {alone[0]['sides']['sparse']['p50_ms']:.3f} ms" in text
    for case in cases:
        for side in case["sides"].values():
            assert f"{side['p50_ms']:.3f}" in text, case["case"]
        ratio = case["dense_over_sparse"]
        assert f"| {ratio:.{1 if ratio >= 10 else 2}f} |" in text
