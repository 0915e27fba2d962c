"""The public surface of the three packages is the one in `public_surface.txt`.

python tests/architecture/test_public_surface.py    # write the file anew, after a change that is meant
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).with_name("public_surface.txt")


def public_modules() -> list[str]:
    """Modules of the first table of docs/stability.md."""
    page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^## Public modules$(.*?)^## ", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `([\w.]+)` \|", table, flags=re.MULTILINE)


def public_names(module: str) -> list[str]:
    """What a module lists in `__all__`, else what it defines without an underscore."""
    found = importlib.import_module(module)
    defined = (name for name, value in vars(found).items() if getattr(value, "__module__", "") == module)
    return sorted(getattr(found, "__all__", None) or (name for name in defined if not name.startswith("_")))


def parameters(value: object) -> str:
    """Names of parameters as a call writes them, with ``=`` if optional; empty for what is not called."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, BaseException | dict)):
        return ""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    parts: list[str] = []
    for each in found:
        if each.kind is each.KEYWORD_ONLY and "*" not in parts and not any(p[:1] == "*" for p in parts):
            parts.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        parts.append(f"{stars}{each.name}{'' if each.default is each.empty else '='}")
    return f"({', '.join(parts)})"


def defined_methods(owner: type) -> Iterator[str]:
    """Public methods in the order of their names, without those that a base defines."""
    for name, function in sorted(vars(owner).items()):
        if name.startswith("_"):
            continue
        bound = isinstance(function, staticmethod | classmethod)
        own = inspect.isfunction(function) and function.__qualname__ == f"{owner.__qualname__}.{name}"
        if bound or own:
            yield name


def surface() -> Iterator[str]:
    """A line for each public name and each public method."""
    for module in public_modules():
        for name in public_names(module):
            value = getattr(importlib.import_module(module), name)
            yield f"{module}.{name}{parameters(value)}"
            if inspect.isclass(value):
                for method in defined_methods(value):
                    yield f"{module}.{name}.{method}{parameters(getattr(value, method))}"


def test_public_surface_is_the_snapshot() -> None:
    before, now = SNAPSHOT.read_text(encoding="utf-8").splitlines(), list(surface())
    changed = [line for line in difflib.ndiff(before, now) if line[:1] in "+-"]
    assert now == before, (
        "The public names or parameters changed (- before, + now):\n"
        + "\n".join(changed)
        + "\nIf this is meant,"
        " run `python tests/architecture/test_public_surface.py` and name the change in CHANGELOG.md."
    )


@pytest.mark.parametrize("package", ["sparse_core", "perception", "memory"])
def test_every_package_has_public_names(package: str) -> None:
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith(f"{package}.") for line in lines) > 100


def test_every_all_is_complete_and_resolves(source_files: dict[str, Path]) -> None:
    listed = 0
    for name, path in source_files.items():
        if not re.search(r"^__all__", path.read_text(), flags=re.MULTILINE):
            continue
        module = importlib.import_module(name)
        listed += 1
        assert len(set(module.__all__)) == len(module.__all__), name
        assert [entry for entry in module.__all__ if not hasattr(module, entry)] == [], name
        if path.name == "__init__.py":
            defined = {
                key
                for key, value in vars(module).items()
                if not key.startswith("_")
                and (inspect.isclass(value) or inspect.isfunction(value))
                and value.__module__.partition(".")[0] == name.partition(".")[0]
            }
            assert defined - set(module.__all__) == set(), f"{name} shows names that __all__ leaves out"
    assert listed >= 4


@pytest.mark.parametrize("package", ["sparse_core", "perception", "memory"])
def test_packages_are_typed(repository: Path, package: str) -> None:
    assert (repository / package / "py.typed").is_file()


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("perception.cli", "perceive"),
        ("memory.cli", "recall"),
        ("sparse_core.merging.cli", "sparsight-merge"),
    ],
)
def test_every_command_tells_its_version(
    module: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(module).main(["--version"])
    assert stopped.value.code == 0
    version = importlib.import_module("sparse_core").__version__
    assert capsys.readouterr().out == f"{command} (Sparsight) {version}\n"


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{line}\n" for line in surface()), encoding="utf-8")
