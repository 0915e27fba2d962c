"""The project's files and a fresh interpreter."""

from __future__ import annotations

import ast
import os
import re
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
#: A string that may name a module, ``package.module`` or ``package.module:name``.
_NAMED = re.compile(r"(?P<module>\w+(\.\w+)+)(:(?P<name>\w+))?")

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
    """Function that returns what a file imports anywhere, by absolute names.

    A string that names a module counts as an import of it: tables of commands, entry points, lazy attributes
    and implementations are resolved later. Names of no module of the project are dropped by who asks.
    """
    read: dict[tuple[Path, str], list[Import]] = {}

    def imports(path: Path, module: str) -> Iterator[Import]:
        found = read.get((path, module))
        if found is None:
            found = read[path, module] = list(_imports_in(path, module))
        yield from found

    return imports


def _imports_in(path: Path, module: str) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    docstrings: set[int] = set()
    # A parent comes before its docstring.
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr):
                docstrings.add(id(first.value))
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from ((base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _implementation(node, package)
        elif id(node) not in docstrings and (found := _NAMED.fullmatch(_text(node, module, package))):
            yield found["module"], found["name"] or ""


def _text(node: ast.AST, module: str, package: str) -> str:
    """Return the text of a string, with ``__name__`` and ``__package__`` in place; "" for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        known = {"__name__": module, "__package__": package}
        parts = [
            known.get(ast.unparse(part.value), "") if isinstance(part, ast.FormattedValue) else part.value
            for part in node.values
            if isinstance(part, ast.FormattedValue | ast.Constant)
        ]
        return "".join(map(str, parts))
    return ""


def _implementation(call: ast.Call, package: str) -> Iterator[Import]:
    """The module of an implementation that an op declares by its name."""
    name = {"by_torch": "reference", "by_triton": "triton"}.get(ast.unparse(call.func))
    if ast.unparse(call.func) == "Implementation" and call.args and isinstance(call.args[0], ast.Constant):
        name = str(call.args[0].value)
    if name and not any(word.arg == "module" for word in call.keywords):
        yield f"{package}.{name}", ""
