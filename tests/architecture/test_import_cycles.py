"""No module and no folder imports itself by way of others, however and wherever the import is written.

An import inside a function and one under ``TYPE_CHECKING`` count like one at the top: any of them makes files
that can only be read and changed together. So do names that are resolved from strings: ``import_module`` with
a literal or a table, ``module:name``, lazy attributes of a package and implementations of an op. What lies in
a folder's subfolder is taken together as that subfolder; the folder's own ``__init__``, which stands above
them, is a module and no part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

Imports = Callable[[Path, str], Iterator[tuple[str, str]]]
Graph = Mapping[str, Iterable[str]]


def import_graph(source_files: Mapping[str, Path], imports_in: Imports) -> dict[str, set[str]]:
    """Modules that each module imports: ``from a import b`` is ``a.b`` where that is a module, else ``a``."""
    graph: dict[str, set[str]] = {}
    for module, path in source_files.items():
        pairs = ((f"{base}.{name}", base) for base, name in imports_in(path, module))
        found = {whole if whole in source_files else base for whole, base in pairs}
        graph[module] = (found & source_files.keys()) - {module}
    return graph


def inside(folder: str, graph: Graph) -> dict[str, set[str]]:
    """The same among what lies directly in a folder, modules and subfolders; ``""`` is the repository."""
    prefix = f"{folder}." if folder else ""
    between = defaultdict(set)
    for module, found in graph.items():
        for name in (module, *found):
            if module.startswith(prefix) and name.startswith(prefix):
                ours, theirs = (one.removeprefix(prefix).partition(".")[0] for one in (module, name))
                between[ours].update({theirs} - {ours})
    return between


def cycles(graph: Graph) -> Iterator[str]:
    """One way round for each node that can be reached from itself, every circle told once."""
    told: set[str] = set()
    for start in sorted(graph):
        before = dict.fromkeys(sorted(graph[start]), start)
        waiting = list(before)
        for name in waiting:
            fresh = [later for later in sorted(graph.get(name, ())) if later not in before]
            before.update(dict.fromkeys(fresh, name))
            waiting += fresh
        if start in before and start not in told:
            way = [start]
            while len(way) == 1 or way[-1] != start:
                way.append(before[way[-1]])
            told.update(way)
            yield " -> ".join(reversed(way))


def test_no_module_imports_itself_by_way_of_others(
    source_files: dict[str, Path], imports_in: Imports
) -> None:
    graph = import_graph(source_files, imports_in)
    assert len(graph) > 500
    assert "sparse_core.formats.base" in graph["sparse_core.formats.csr"]
    assert list(cycles(graph)) == []


def test_no_folder_imports_itself_by_way_of_others(
    source_files: dict[str, Path], imports_in: Imports
) -> None:
    graph = import_graph(source_files, imports_in)
    folders = ["", *(module for module, path in source_files.items() if path.name == "__init__.py")]
    assert {"sparse_core", "sparse_core.linalg", "memory"} <= set(folders)
    found = [f"{folder or 'all'}: {way}" for folder in folders for way in cycles(inside(folder, graph))]
    assert found == []


def test_cycles_are_found_wherever_they_are_written(tmp_path: Path, imports_in: Imports) -> None:
    files = {
        "top.a": "from top import b\n",
        "top.b": "def later():\n    from top.c import name\n",
        "top.c": "if TYPE_CHECKING:\n    from .a import name\n",
        "top.d": "from top import a, name\n",
    }
    paths = {module: tmp_path / f"{module}.py" for module in files}
    for module, text in files.items():
        paths[module].write_text(text)
    graph = import_graph(paths, imports_in)
    assert graph == {"top.a": {"top.b"}, "top.b": {"top.c"}, "top.c": {"top.a"}, "top.d": {"top.a"}}
    assert list(cycles(graph)) == ["top.a -> top.b -> top.c -> top.a"]


def test_cycles_by_strings_are_found(tmp_path: Path, imports_in: Imports) -> None:
    files = {
        "top": '_LAZY = {"name": "top.a"}\n',
        "top.a": 'KINDS = {"kind": "top.b:Name"}\n',
        "top.b": 'OP = Op("op", __package__, by_triton())\n',
        "top.triton": 'import_module(f"{__package__}.c")\n',
        "top.c": '"""See top.d."""\nTEXT = "top.d is no module, and top.e is none"\nfrom top import Name\n',
        "top.d": 'by_torch(module=f"{__package__}.a")\n',
    }
    paths = {module: tmp_path / ("__init__.py" if module == "top" else f"{module}.py") for module in files}
    for module, text in files.items():
        paths[module].write_text(text)
    graph = import_graph(paths, imports_in)
    assert graph == {
        "top": {"top.a"},
        "top.a": {"top.b"},
        "top.b": {"top.triton"},
        "top.triton": {"top.c"},
        "top.c": {"top"},
        "top.d": {"top.a"},
    }
    assert list(cycles(graph)) == ["top -> top.a -> top.b -> top.triton -> top.c -> top"]


def test_cycles_of_folders_are_found() -> None:
    graph = {
        "p.x.one": {"p.y.two"},
        "p.y.three": {"p.x.four"},
        "p.y.two": set(),
        "p.x.four": set(),
        "p": {"p.x"},
    }
    assert list(cycles(graph)) == []
    assert list(cycles(inside("p", graph))) == ["x -> y -> x"]
    assert list(cycles(inside("", graph))) == []
