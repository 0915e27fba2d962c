"""The project's files and a fresh interpreter."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGES = ("sparse_core", "perception", "memory")
#: Dot directories and files that belong to the project.
_VISIBLE_DOTS = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml"}
_BUILD_OUTPUTS = {"__pycache__", "build", "dist", "out", "runs"}

RunPython = Callable[[str], str]
#: A module, and a name imported from it ("" for the module itself).
Import = tuple[str, str]
ImportsIn = Callable[[Path, str], Iterator[Import]]


@pytest.fixture(scope="session")
def source_files(repository: Path) -> dict[str, Path]:
    """Python files of the packages by dotted module name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((repository / package).rglob("*.py")):
            parts = path.relative_to(repository).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@pytest.fixture(scope="session")
def project_files(repository: Path) -> list[Path]:
    """Every file that is or could be committed: what git lists, else a walk that leaves out build outputs."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        files = [repository / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        files = list(_walk(repository))
    return [path for path in files if path.is_file()]


def _walk(root: Path) -> Iterator[Path]:
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if _belongs(name)]
        yield from (Path(folder) / name for name in names if _belongs(name))


def _belongs(name: str) -> bool:
    if name.startswith("."):
        return name in _VISIBLE_DOTS
    return name not in _BUILD_OUTPUTS and not name.endswith(".egg-info")


@pytest.fixture(scope="session")
def run_python(repository: Path) -> RunPython:
    """Function that runs a program in a fresh interpreter and returns what it prints."""

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=repository,
            env={**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "2"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def imports_in() -> ImportsIn:
    """Function that tells what a file, given by path and dotted name, imports anywhere, by absolute names."""
    read: dict[tuple[Path, str], list[Import]] = {}

    def imports(path: Path, module: str) -> Iterator[Import]:
        found = read.get((path, module))
        if found is None:
            found = read[path, module] = list(_imports_in(path, module))
        yield from found

    return imports


def _imports_in(path: Path, module: str) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from ((base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "import_module",
            "importlib.import_module",
        ):
            yield from ((str(word.value), "") for word in node.args if isinstance(word, ast.Constant))
