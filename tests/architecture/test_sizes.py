"""Folders and files that a reader can survey, and names that are used for one thing."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

MOST_FILES, MOST_LINES = 20, 500


def test_folders_hold_few_files(project_files: list[Path], repository: Path) -> None:
    counts = Counter(path.parent for path in project_files if path.suffix == ".py")
    # Tests mirror the packages: their folders hold several files for a module.
    crowded = {
        str(folder.relative_to(repository)): count
        for folder, count in counts.items()
        if count > MOST_FILES and (repository / "tests") not in folder.parents
    }
    assert crowded == {}


def test_files_are_short(project_files: list[Path], repository: Path) -> None:
    lengths = {
        str(path.relative_to(repository)): len(path.read_text(encoding="utf-8").splitlines())
        for path in project_files
        if path.suffix == ".py"
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_package_has_two_classes_of_one_name(source_files: dict[str, Path]) -> None:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, path in source_files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[module.partition(".")[0], node.name].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}
