"""List the versions of the site for the switch in the header.

``versions.js`` is a script, because pages opened from disk may load scripts but not JSON files.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

_START = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Sparsight</title>
<meta http-equiv="refresh" content="0; url={folder}/index.html">
<p><a href="{folder}/index.html">Sparsight {folder}</a></p>
</html>
"""


def list_versions(site: Path) -> list[str]:
    """Write the list of versions, and a start page that opens the newest.

    Args:
        site: folder with a folder for each version.

    Returns:
        Versions, newest first.
    """
    folders = [page.parent for page in site.glob("*/index.html") if re.match(r"\d", page.parent.name)]
    folders.sort(key=lambda folder: _place(folder.name), reverse=True)
    listed = [
        {
            "version": folder.name,
            "pages": sorted(page.relative_to(folder).as_posix() for page in folder.rglob("*.html")),
        }
        for folder in folders
    ]
    (site / "versions.js").write_text(f"window.siteVersions = {json.dumps(listed)};\n", encoding="utf-8")
    if folders:
        first = _START.format(folder=escape(folders[0].name, quote=True))
        (site / "index.html").write_text(first, encoding="utf-8")
    return [folder.name for folder in folders]


def _place(version: str) -> tuple[list[int], bool, str]:
    """Sort key of a version: numbers by value, pre-releases first: 0.9, 0.10rc1, 0.10."""
    release = re.match(r"[\d.]+", version)
    numbers = [int(part) for part in (release[0] if release else "").split(".") if part]
    rest = version[release.end() :] if release else version
    return numbers, not re.match(r"\.?(a|b|rc|dev)", rest), rest
