"""The page about where the suite uses sparse_core: what it claims is imported, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    cells[0].strip(" `"): re.findall(r"`([\w/]+\.py)`", cells[1])
    for line in (ROOT / "docs/parts.md").read_text(encoding="utf-8").splitlines()
    if len(cells := line.strip("|").split("|")) == 4 and cells[0].strip().startswith("`")
}

#: Folders of ``sparse_core`` that every part uses: no building blocks of their own.
SHARED = {"common", "kernels"}


def importers(part: str) -> set[str]:
    """Files of the detector and the memory that import from a part."""
    pattern = re.compile(rf"^\s*(?:from|import) sparse_core\.{part}\b", re.MULTILINE)
    return {
        path.relative_to(ROOT).as_posix()
        for package in ("perception", "memory")
        for path in (ROOT / package).rglob("*.py")
        if pattern.search(path.read_text(encoding="utf-8"))
    }


def test_every_part_has_a_row() -> None:
    folders = {path.parent.name for path in (ROOT / "sparse_core").glob("*/__init__.py")}
    assert set(ROWS) == folders - SHARED


@pytest.mark.parametrize("part", sorted(ROWS))
def test_what_is_claimed_is_imported(part: str) -> None:
    found = importers(part)
    assert set(ROWS[part]) <= found
    assert bool(ROWS[part]) == bool(found), f"the page names no file that uses {part}, but {sorted(found)} do"
