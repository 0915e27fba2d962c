"""The examples and commands of docs/sparsity-mistakes.md run, and its claims hold."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sparse_core.nm.linear import product

#: Commands that take more than a few seconds.
_SLOW = ("demos/prune_model.py", "demos/compress_detector.py")


def page_text() -> str:
    return (Path(__file__).parents[2] / "docs/sparsity-mistakes.md").read_text()


def commands() -> list[Any]:
    blocks = re.findall(r"```bash\n(.*?)```", page_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line]
    return [
        pytest.param(line, marks=pytest.mark.slow if any(name in line for name in _SLOW) else [])
        for line in lines
    ]


def test_examples_run_and_show_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page_text(), flags=re.DOTALL)
    assert len(blocks) == 10
    names: dict[str, Any] = {}
    printed = []
    torch.manual_seed(0)
    # Another test of this process may have been told already.
    product._warn_once.cache_clear()
    for block in blocks:
        exec(compile(block, "sparsity-mistakes.md", "exec"), names)
        printed.append(capsys.readouterr().out)
    wrong, imbalance, _update, moved, pruned, hardware, unstable, summed, _reads, size = printed
    description = names["matrix"].describe()
    assert description.format_nbytes["CSR"] > 256 * 256 * 4
    assert "choice" in wrong
    assert names["report"] is not None
    assert re.search(r"Gini 0\.[3-9]", imbalance)
    assert names["padding"] > 3
    assert 0 < names["flipped"] < 0.2
    assert_like_the_page(moved)
    assert "output error" in pruned
    assert "unpacked" in hardware
    assert "theory" in size
    assert re.search(r"\[0\.\]\)\ntensor\(\[1\.\]", unstable)
    assert not names["stuck"].converged
    assert "False max_iterations True 1" in unstable
    assert summed.endswith("True\n")
    diagonals = names["diagonals"]
    assert 5 == diagonals["grid"] < diagonals["mended"] < diagonals["shuffled"] / 10


def assert_like_the_page(printed: str) -> None:
    """Compare the RigL report with the page: dropped connections exactly, others nearly."""
    (shown,) = re.findall(r"```text\n(.*?)```", page_text(), flags=re.DOTALL)
    lines, expected = printed.splitlines(), shown.splitlines()
    assert len(lines) == len(expected)
    for line, other in zip(lines[:-1], expected[:-1], strict=True):
        found, wanted = line.split(), other.split()
        if wanted[0].isdigit():
            assert found[:2] == wanted[:2]
            # Gradients that are nearly equal change places with the number of threads.
            assert int(found[2]) == pytest.approx(int(wanted[2]), abs=10)
            assert int(found[2]) <= int(found[1])
        else:
            assert found == wanted
    assert lines[-1].endswith("% of the time in 3 steps of 100")


@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str, repository: Path, tmp_path: Path, request: Any) -> None:
    if "compress_detector" in command:
        request.getfixturevalue("kitti_directory")
    words = shlex.split(command.replace("out/mistakes", str(tmp_path)))
    assert words[0] == "python"
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert any(tmp_path.iterdir())
