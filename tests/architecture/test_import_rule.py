"""sparse_core <- perception, memory <- demos, benchmarks; implementations of an op stay apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ABOVE = {"demos", "benchmarks", "tests"}
FORBIDDEN = {
    "sparse_core": {"perception", "memory"} | ABOVE,
    "perception": {"memory"} | ABOVE,
    "memory": {"perception"} | ABOVE,
}
IMPLEMENTATIONS = ("reference", "triton", "vendor")

#: All of sparse_core, then, in a process each that is forked from that one, all of the others.
IMPORT_EVERYTHING = """
import importlib, json, os, pkgutil, sys, warnings
warnings.simplefilter("ignore")

def load(name):
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        # Kernels and wrappers need libraries that may be absent; programs run when imported.
        if found.name.rpartition(".")[2] not in ("triton", "vendor", "__main__"):
            importlib.import_module(found.name)
    print(json.dumps([name, sorted(sys.modules)]), flush=True)

load("sparse_core")
for name in ("perception", "memory"):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
    else:
        load(name)
        os._exit(0)
"""


Imports = Callable[[Path, str], Iterator[tuple[str, str]]]


def modules(imports: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What may be a module: ``from a import b`` as both ``a`` and ``a.b``."""
    for base, name in imports:
        yield base
        yield f"{base}.{name}"


def test_no_file_imports_against_the_rule(source_files: dict[str, Path], imports_in: Imports) -> None:
    assert {"sparse_core.conv.coordinates.triton", "perception.detector", "memory"} <= source_files.keys()
    violations = [
        f"{module} imports {name}"
        for module, path in source_files.items()
        for name in modules(imports_in(path, module))
        if name.partition(".")[0] in FORBIDDEN[module.partition(".")[0]]
    ]
    assert violations == []


def test_a_fresh_process_loads_nothing_against_the_rule(run_python: Callable[[str], str]) -> None:
    loaded = dict(map(json.loads, run_python(IMPORT_EVERYTHING).splitlines()))
    assert loaded.keys() == FORBIDDEN.keys()
    for package, names in loaded.items():
        assert package in names
        assert {name.partition(".")[0] for name in names} & FORBIDDEN[package] == set()


def test_implementations_of_an_op_never_import_each_other(
    source_files: dict[str, Path], imports_in: Imports
) -> None:
    violations, seen = [], 0
    for module, path in source_files.items():
        folder, _, name = module.rpartition(".")
        if name not in IMPLEMENTATIONS or f"{folder}.api" not in source_files:
            continue
        seen += 1
        others = {f"{folder}.{other}" for other in (*IMPLEMENTATIONS, "api") if other != name}
        violations += [
            f"{module} imports {found}" for found in modules(imports_in(path, module)) if found in others
        ]
    assert seen >= 4
    assert violations == []


def test_imports_are_found_in_every_form(tmp_path: Path, imports_in: Imports) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\n"
        "def later():\n    import h\n    importlib.import_module('i.j')\n"
    )
    found = set(modules(imports_in(path, "top.middle.sample")))
    assert {"a.b", "c.d", "top.middle.e", "top.f", "top.f.g", "h", "i.j"} <= found
