"""The version stands in three places, and a release has a date."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib

from sparse_core import __version__


def test_the_version_is_one(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    changes = (repository / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[([^\]]+)\] - (.+)$", changes, re.MULTILINE)
    assert project["version"] == __version__ == headings[0][0]
    assert re.fullmatch(r"not released yet|20\d\d-\d\d-\d\d", headings[0][1])
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", when) for _, when in headings[1:])
    versions = [tuple(map(int, name.split("."))) for name, _ in headings]
    assert versions == sorted(set(versions), reverse=True)
