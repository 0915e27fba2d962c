"""Every public module, class, function and method says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public names without a docstring; a nested function is not public."""
    if ast.get_docstring(tree) is None:
        yield "<module>"
    yield from _undocumented_in(tree.body, "")


def _undocumented_in(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_") or _repeats_another(node):
            continue
        if ast.get_docstring(node) is None:
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_in(node.body, f"{prefix}{node.name}.")


def _repeats_another(node: Definition) -> bool:
    """Overloads, overrides and setters are described where they are first defined."""
    names = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return any(name in ("overload", "override", "setter") for name in names)


def test_public_names_have_docstrings(source_files: dict[str, Path]) -> None:
    missing = [
        f"{module}: {name}"
        for module, path in source_files.items()
        for name in undocumented(ast.parse(path.read_text()))
    ]
    assert missing == []


def test_missing_docstrings_are_found() -> None:
    tree = ast.parse(
        'class A:\n    """Doc."""\n    def b(self): ...\n    def _c(self): ...\n'
        "class _D:\n    def e(self): ...\n"
        "def f():\n    def g(): ...\n@overload\ndef h(): ...\n"
    )
    assert list(undocumented(tree)) == ["<module>", "A.b", "f"]
