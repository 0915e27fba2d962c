"""Write the reference: one page per public module, and one of all commands."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from website.places import ROOT

PACKAGES = ("perception", "memory", "sparse_core")


class Module(NamedTuple):
    """A module in docs/stability.md.

    Attributes:
        name: dotted.
        words: its description.
        promised: True if it is in the first table.
    """

    name: str
    words: str
    promised: bool


def modules() -> list[Module]:
    """Return the modules of the reference in the order of docs/stability.md."""
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    promised, _, others = text.partition("## Modules that may change")
    return [
        Module(name, words, part is promised)
        for part in (promised, others)
        for name, words in re.findall(r"^\| `([\w.]+)` \| (.*) \|$", part, flags=re.MULTILINE)
    ]


def public_names(module: str) -> list[str]:
    """Return ``__all__`` of a module, or the public names that it defines.

    Raises:
        ImportError: there is no such module.
    """
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    defined = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == module]
    return [name for name in defined if not name.startswith("_")]


def write_reference(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Write the pages; return titles and files by package."""
    found: dict[str, list[tuple[str, str]]] = {package: [] for package in PACKAGES}
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules():
        text = _page(module)
        (folder / f"{module.name}.md").write_text(text, encoding="utf-8")
        found[module.name.partition(".")[0]].append((module.name, f"reference/{module.name}.md"))
    (folder / "commands.md").write_text(_commands(), encoding="utf-8")
    return found


def source_file(module: str) -> Path:
    """Return the file of a module."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _page(module: Module) -> str:
    """Return a page of directives that mkdocstrings expands."""
    found, parts = importlib.import_module(module.name), [f"# {module.name}"]
    if not module.promised:
        parts.append("May change in any version ([what is public](../stability.md)).")
    names = public_names(module.name)
    plain = [name for name in names if _shown_by_its_module(found, name)]
    parts.append(_directive(module.name, members=plain))
    for name in names:
        if name in plain:
            continue
        value = getattr(found, name)
        # An anchor, as the others have.
        parts.append(f'<a id="{module.name}.{name}"></a>')
        if _described(value):
            parts.append(_directive(f"{value.__module__}.{value.__qualname__}", root=True))
        else:
            parts.append(
                f"## {name}\n\n{_comment(module.name, name)}\n\n```python\n{_short(repr(value))}\n```"
            )
    return "\n\n".join(parts) + "\n"


def _described(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _shown_by_its_module(module: ModuleType, name: str) -> bool:
    """Return True if mkdocstrings finds the name in the module: no submodule has the same name."""
    value = getattr(module, name)
    if not _described(value) or value.__module__.rpartition(".")[2] == name:
        return False
    beside = source_file(module.__name__).parent / name
    return not (beside.is_dir() or beside.with_suffix(".py").is_file())


def _directive(path: str, *, members: Sequence[str] | None = None, root: bool = False) -> str:
    lines = [f"::: {path}", "    options:", f"      show_root_heading: {str(root).lower()}"]
    lines.append(f"      show_root_toc_entry: {str(root).lower()}")
    if members is not None:
        lines += [
            "      members: " + ("[]" if not members else ""),
            *(f"        - {name}" for name in members),
        ]
    return "\n".join(lines)


def _comment(module: str, name: str) -> str:
    """Return the ``#:`` comment above a value."""
    package = module.partition(".")[0]
    for path in [source_file(module), *sorted((ROOT / package).rglob("*.py"))]:
        pattern = rf"((?:^#: .*\n)+){name}\b[^=\n]*="
        if found := re.search(pattern, path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            return found[1].replace("#: ", "").strip()
    return ""


def _short(text: str, most: int = 600) -> str:
    return text if len(text) <= most else text[:most] + " ..."


def _commands() -> str:
    """Return the ``--help`` output of every command."""
    from memory.cli import commands as remembering
    from perception.cli import commands as perceiving

    parts = ["# Command line\n\nWhat `--help` prints; [with examples](../commands.md)."]
    for program, module in (("perceive", perceiving), ("recall", remembering)):
        parts.append(f"## {program}")
        for name in module.COMMANDS:
            parts.append(f"### {program} {name}\n\n```text\n{_help(program, name)}\n```")
    return "\n\n".join(parts) + "\n"


def _help(program: str, name: str) -> str:
    from memory.cli import main as recall
    from perception.cli import main as perceive

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        {"perceive": perceive, "recall": recall}[program]([name, "--help"])
    return printed.getvalue().strip()
