"""What may lie in the repository: nothing large, nothing of one person's machine."""

from __future__ import annotations

import re
from pathlib import Path

LARGEST_BYTES = 10_000_000

#: Folders and hosts that exist on one machine or one network only. The brackets keep this file from matching.
PRIVATE = re.compile(
    r"(?<![\w.~$})-])/(?:[w]ork|[h]ome|[r]oot|[U]sers|[m]nt)/[\w.]"
    r"|[C]:\\\\?Users"
    r"|https?://[\w.-]*\.(?:[i]nternal|[c]orp|[l]an)\b"
    r"|https?://(?:10\.|192\.168\.)\d"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)


def text_of(path: Path) -> str | None:
    """Contents of a text file, None for a binary one."""
    raw = path.read_bytes()
    if b"\0" in raw[:4096]:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def test_no_file_is_large(project_files: list[Path], repository: Path) -> None:
    assert len(project_files) > 50
    large = {
        str(path.relative_to(repository)): path.stat().st_size
        for path in project_files
        if path.stat().st_size >= LARGEST_BYTES
    }
    assert large == {}


def test_no_file_names_a_private_place(project_files: list[Path], repository: Path) -> None:
    found = [
        f"{path.relative_to(repository)}: {match.group()}"
        for path in project_files
        if (text := text_of(path)) is not None
        for match in PRIVATE.finditer(text)
    ]
    assert found == []


def test_private_places_are_recognised() -> None:
    for folder in ("work", "home", "root", "Users"):
        assert PRIVATE.search(f"see /{folder}/someone/data")
    assert PRIVATE.search("https://mirror.company." + "internal/simple")
    for fine in ("../work/data", "~/home/x", "https://github.com/home/page", "/usr/lib", "$HOME/work/x"):
        assert PRIVATE.search(fine) is None, fine


def test_python_files_are_named_after_things(project_files: list[Path]) -> None:
    vague = {"utils.py", "util.py", "helpers.py", "helper.py", "misc.py", "common_utils.py"}
    assert [str(path) for path in project_files if path.name in vague] == []


def test_tests_hold_no_packages(repository: Path) -> None:
    """pytest imports test files by path (importmode importlib); an ``__init__.py`` would break that."""
    assert list((repository / "tests").rglob("__init__.py")) == []
