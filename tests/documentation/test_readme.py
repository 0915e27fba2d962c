"""README does what it says: Python runs, commands parse, links lead somewhere, figures are the results'."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from memory.cli import main as recall
from perception.cli import main
from sparse_core.merging.cli import main as merge

TEXT = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    rng = np.random.default_rng(0)
    scan = rng.uniform([0, -30, -2, 0], [60, 30, 0, 1], size=(3000, 4)).astype(np.float32)
    scan.tofile(tmp_path / "scan.bin")
    monkeypatch.chdir(tmp_path)
    found = blocks("python")
    assert len(found) == 6
    for block in found:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("line", [line for block in blocks("bash") for line in block.splitlines() if line])
def test_commands_exist(line: str, capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    program, command, *rest = shlex.split(line, comments=True)
    if program == "python":
        asked = [sys.executable, command, "--help"]
        described = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=repository).stdout
    else:
        run = {"perceive": main, "recall": recall, "sparsight-merge": merge}[program]
        with pytest.raises(SystemExit) as stopped:
            run(["--help"] if program == "sparsight-merge" else [command, "--help"])
        assert stopped.value.code == 0
        described = capsys.readouterr().out
    for option in (part for part in rest if part.startswith("--")):
        assert option in described


def test_links_lead_somewhere(repository: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert len(links) > 8
    missing = [link for link in links if "://" not in link and not (repository / link).exists()]
    assert missing == []


@pytest.mark.parametrize("row", ["sparse", "dense"])
def test_figures_are_those_of_the_results(repository: Path, row: str) -> None:
    variants = json.loads((repository / "benchmarks/results/detector-cpu.json").read_text())["variants"]
    median = variants[row]["time"]["median_ms"]
    assert re.search(rf"\| \**(?:{median:.0f}|{median:.1f})\** \|", TEXT)


def test_figures_of_whole_frames_on_a_gpu_are_those_of_the_results(repository: Path) -> None:
    names = ("frame-cuda", "frame-alone-cuda")
    results = [repository / "benchmarks/results" / f"{name}.json" for name in names]
    cases, alone = (json.loads(path.read_text())["cases"] for path in results)
    assert len(cases) == 9
    assert f"one takes {alone[0]['sides']['sparse']['p50_ms']:.3f} ms" in TEXT
    for case in cases:
        for side in case["sides"].values():
            assert f"{side['p50_ms']:.3f}" in TEXT, case["case"]
        assert str(round(case["dense_over_sparse"], 1)) in TEXT
