"""Read the order of the pages from docs/README.md."""

from __future__ import annotations

import os
import re
from pathlib import Path

from website.pages import page_name
from website.places import ROOT

#: Titles with a file of the site, or with the entries of a section.
Navigation = list[tuple[str, "str | Navigation"]]


def navigation(reference: dict[str, list[tuple[str, str]]]) -> Navigation:
    """Return the sections of the index with their pages; "Reference" also lists the public modules.

    Args:
        reference: titles and files of :func:`website.reference.write_reference`.
    """
    sections: Navigation = []
    entries: Navigation = []
    for line in (ROOT / "docs" / "README.md").read_text(encoding="utf-8").splitlines():
        if head := re.match(r"\*\*(.+?)\*\*", line):
            entries = [] if sections else [("Home", "index.md")]
            sections.append((head[1], entries))
        elif found := re.match(r"- \[(.+?)\]\(([^)]+)\)", line):
            file = page_name(Path(os.path.normpath(Path("docs") / found[2]))).as_posix()
            entries.append((found[1], file))
    named = [(package, list(pages)) for package, pages in reference.items()]
    pages = next(what for head, what in sections if head == "Reference")
    assert isinstance(pages, list)
    pages += [("Command line", "reference/commands.md"), *named]
    sections.append(("Changes", [("Changelog", "changelog.md"), ("All pages", "contents.md")]))
    return sections


def as_toml(entries: Navigation) -> str:
    """Return the navigation as TOML."""
    parts = [f"{{{_quoted(title)} = {_value(what)}}}" for title, what in entries]
    return f"[{', '.join(parts)}]"


def _value(what: str | Navigation) -> str:
    return _quoted(what) if isinstance(what, str) else as_toml(what)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
