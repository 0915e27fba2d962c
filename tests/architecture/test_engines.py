"""The engines of a store stand beside each other: what they share knows neither of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

Imports = Callable[[Path, str], Iterator[tuple[str, str]]]

ROOT = "memory.persistence"
#: What belongs to one engine alone.
OWN = {
    f"{ROOT}.sqlite": ("sqlite3", "fcntl"),
    f"{ROOT}.postgres": ("psycopg", "psycopg_pool", "pg0"),
}
#: Opens a store by its address, and tells addresses from folders.
CHOOSES = f"{ROOT}.opening"


def foreign(module: str) -> tuple[str, ...]:
    """Return the packages that a module of the persistence must not import."""
    return tuple(
        package
        for engine, libraries in OWN.items()
        if not f"{module}.".startswith(f"{engine}.") and module != CHOOSES
        for package in (engine, *libraries)
    )


def test_no_module_imports_an_engine_that_it_is_not_of(
    source_files: dict[str, Path], imports_in: Imports
) -> None:
    modules = {module: path for module, path in source_files.items() if f"{module}.".startswith(f"{ROOT}.")}
    assert {f"{ROOT}.rows", f"{ROOT}.log.journal", f"{ROOT}.sqlite.tables"} <= modules.keys()
    found = [
        f"{module} imports {base}.{name}"
        for module, path in modules.items()
        for base, name in imports_in(path, module)
        if any(f"{base}.{name}.".startswith(f"{package}.") for package in foreign(module))
    ]
    assert found == []


def test_what_engines_share_loads_neither(run_python: Callable[[str], str]) -> None:
    loaded = run_python(
        f"import sys, {ROOT}.database, {ROOT}.log.reception\n"
        f"print([name for name in sys.modules if name.startswith({tuple(OWN)!r})])"
    )
    assert loaded.strip() == "[]"
