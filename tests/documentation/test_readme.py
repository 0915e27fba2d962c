"""The Python blocks of README and of guides run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
README = "README.md"
#: Pages with independent Python blocks, and the number of blocks.
PYTHON = {
    README: 2,
    "docs/detect.md": 1,
    "docs/live.md": 1,
    "docs/sparse-core.md": 4,
    "docs/compression.md": 1,
    "docs/two-four.md": 2,
}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), flags=re.DOTALL)


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
