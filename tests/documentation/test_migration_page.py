"""The examples of docs/migration.md run, and the names that it promises exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/migration.md"
MODULES = ("sparse_core.nm", "sparse_core.formats", "sparse_core.linalg")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    printed = capsys.readouterr().out
    assert re.search(r"^2 +Linear +not selected", printed, flags=re.MULTILINE), printed


def test_the_names_in_the_second_column_exist() -> None:
    rows = re.findall(r"^\| .*? \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    called = {name for row in rows for name in re.findall(r"(?<![.\w])([A-Za-z_]\w+)(?=\(|`|\.from)", row)}
    known = {name for module in MODULES for name in importlib.import_module(module).__all__}
    wanted = {"sparsify", "prune", "attach_masks", "SparseTrainingLinear", "load_packed", "save_packed",
              "PackedNM", "COO", "CSR", "spmm", "cg", "bicgstab", "lu", "Block"}  # fmt: skip
    assert wanted <= called
    assert wanted <= known
