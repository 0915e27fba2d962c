"""What breaks callers is found, allowed by the version or not, and named in the changelog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BEFORE = ["a.Box(x, y, *, z=)", "a.Box.turn(self, angle)", "a.read(path)", "a.write(path, value=)", "a.PI"]
ORDER = "takes its positional parameters in another order"
CHANGES = (
    "# Changelog\n\n## [0.3.0] - 2027-01-01\n\n- `read` became `load`.\n\n## [0.2.0] - 2026-12-01\n\n- `PI`\n"
)


@pytest.fixture
def surface(release_module: Callable[[str], ModuleType]) -> ModuleType:
    return release_module("surface")


def changed(**lines: str | None) -> list[str]:
    """Return the surface with some lines replaced, by the last part of their names, or removed."""
    found = []
    for line in BEFORE:
        key = line.partition("(")[0].rpartition(".")[2]
        new = lines.get(key, line)
        if new is not None:
            found.append(new)
    return found


def test_additions_break_nothing(surface: ModuleType) -> None:
    now = [*changed(Box="a.Box(x, y=, w=, *, z=, more=)", read="a.read(path, *, fast=)"), "a.other()"]
    assert surface.broken_names(BEFORE, now) == {}


@pytest.mark.parametrize(
    ("now", "name", "how"),
    [
        (changed(read=None), "a.read", "is gone"),
        (changed(Box="a.Box(x, *, z=)"), "a.Box", "lacks y"),
        (changed(write="a.write(value=, path=)"), "a.write", ORDER),
        (changed(Box="a.Box(x, *, y, z=)"), "a.Box", ORDER),
        (changed(read="a.read(path, kind)"), "a.read", "now requires kind"),
        (changed(Box="a.Box(x, y, *, z)"), "a.Box", "now requires z"),
    ],
)
def test_what_breaks_is_found(surface: ModuleType, now: list[str], name: str, how: str) -> None:
    assert surface.broken_names(BEFORE, now) == {name: how}


@pytest.mark.parametrize(
    ("last", "version", "gone", "expected"),
    [
        ("0.2.0", "0.3.0", "read", []),
        ("0.2.0", "0.3.0", "PI", ["a.PI is gone; CHANGELOG.md does not name it"]),
        ("0.3.0", "0.3.1", "read", ["a.read is gone; a version with this number must not break"]),
        ("1.0.0", "1.1.0", "read", ["a.read is gone; a version with this number must not break"]),
        ("0.4.0", "0.3.0", "PI", []),
    ],
)
def test_versions_and_the_changelog_decide(
    surface: ModuleType, tmp_path: Path, last: str, version: str, gone: str, expected: list[str]
) -> None:
    (tmp_path / "0.1.0.txt").write_text("a.older()\n")
    (tmp_path / f"{last}.txt").write_text("\n".join(BEFORE))
    if last == "0.4.0":  # A later release is not the last one.
        (tmp_path / "0.1.0.txt").write_text("a.read(path)\n")
    assert surface.check(version, changed(**{gone: None}), CHANGES, tmp_path) == expected


def test_without_a_release_nothing_is_compared(surface: ModuleType, tmp_path: Path) -> None:
    assert surface.check("0.2.0", [], CHANGES, tmp_path) == []


def test_this_tree_keeps_its_promises(surface: ModuleType, repository: Path) -> None:
    from sparse_core import __version__

    lines = (repository / "tests/architecture/public_surface.txt").read_text().splitlines()
    assert surface.check(__version__, lines, (repository / "CHANGELOG.md").read_text()) == []
