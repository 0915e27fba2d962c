"""The index names every page once, and no page has a dead link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("", "docs", "docs/benchmarks", "docs/decisions", "benchmarks", "perception/weights")
PAGES = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))


def _links(page: Path) -> list[str]:
    """Return relative link targets outside code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in links if not re.match(r"\w+:", link)]


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_page_has_one_line_in_the_index() -> None:
    named = [(DOCS / link).resolve() for link in _links(DOCS / "README.md")]
    pages = {path.resolve() for path in DOCS.rglob("*.md")} - {DOCS / "README.md"}
    assert len(named) == len(set(named))
    assert pages - set(named) == set()
    lines = (DOCS / "README.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("- [") for line in lines) == len(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in _links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            dead.append(link)
    assert dead == []


def test_pages_that_code_names_exist() -> None:
    missing = []
    for package in ("sparse_core", "perception", "memory", "benchmarks", "demos", "examples"):
        for path in (ROOT / package).rglob("*.py"):
            named = re.findall(r"(?<![\w/])docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
            missing += [f"{path.name}: {name}" for name in named if not (ROOT / name).is_file()]
    # Pages of OpenPCDet and rmw_zenoh.
    elsewhere = {"openpcdet.py: docs/CUSTOM_DATASET_TUTORIAL.md", "session.py: docs/design.md"}
    assert set(missing) <= elsewhere
