"""sparse_core <- perception, memory <- demos, benchmarks; implementations of an op stay apart."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ABOVE = {"demos", "benchmarks", "tests"}
FORBIDDEN = {
    "sparse_core": {"perception", "memory"} | ABOVE,
    "perception": {"memory"} | ABOVE,
    "memory": {"perception"} | ABOVE,
}
IMPLEMENTATIONS = ("reference", "triton", "vendor")

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys, warnings
warnings.simplefilter("ignore")
package = importlib.import_module({package!r})
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    # Kernels and wrappers need libraries that may be absent; programs run when imported.
    if found.name.rpartition(".")[2] not in ("triton", "vendor", "__main__"):
        importlib.import_module(found.name)
print(json.dumps(sorted(sys.modules)))
"""


def imported_modules(path: Path, module: str) -> Iterator[str]:
    """Absolute names that a file imports anywhere, ``from a import b`` as both ``a`` and ``a.b``."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "import_module",
            "importlib.import_module",
        ):
            yield from (str(word.value) for word in node.args if isinstance(word, ast.Constant))


def test_no_file_imports_against_the_rule(source_files: dict[str, Path]) -> None:
    assert {"sparse_core.conv.coordinates.triton", "perception.detector", "memory"} <= source_files.keys()
    violations = [
        f"{module} imports {name}"
        for module, path in source_files.items()
        for name in imported_modules(path, module)
        if name.partition(".")[0] in FORBIDDEN[module.partition(".")[0]]
    ]
    assert violations == []


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_fresh_process_loads_nothing_against_the_rule(
    package: str, run_python: Callable[[str], str]
) -> None:
    loaded = json.loads(run_python(IMPORT_EVERYTHING.format(package=package)).splitlines()[-1])
    assert package in loaded
    assert {name.partition(".")[0] for name in loaded} & FORBIDDEN[package] == set()


def test_importing_loads_no_optional_library(run_python: Callable[[str], str]) -> None:
    program = "import json, sys, perception, sparse_core.conv; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_python(program).splitlines()[-1]))
    assert (
        loaded & {"triton", "spconv", "open3d", "faiss", "matplotlib", "sparse_core.conv.coordinates.triton"}
        == set()
    )


def test_implementations_of_an_op_never_import_each_other(source_files: dict[str, Path]) -> None:
    violations, seen = [], 0
    for module, path in source_files.items():
        folder, _, name = module.rpartition(".")
        if name not in IMPLEMENTATIONS or f"{folder}.api" not in source_files:
            continue
        seen += 1
        others = {f"{folder}.{other}" for other in (*IMPLEMENTATIONS, "api") if other != name}
        violations += [
            f"{module} imports {found}" for found in imported_modules(path, module) if found in others
        ]
    assert seen >= 4
    assert violations == []


def test_imports_are_found_in_every_form(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\n"
        "def later():\n    import h\n    importlib.import_module('i.j')\n"
    )
    found = set(imported_modules(path, "top.middle.sample"))
    assert {"a.b", "c.d", "top.middle.e", "top.f", "top.f.g", "h", "i.j"} <= found
