"""Commands are declared by name, and imported when they are called; ``--help`` imports none of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import memory.cli.commands
import perception.cli.commands
from sparse_core.common.commands import Command

ROOT = Path(__file__).parents[3]
TABLES = {"memory": memory.cli.commands.COMMANDS, "perception": perception.cli.commands.COMMANDS}
#: Modules that take seconds to import.
SLOW = {"torch", "numpy", "scipy", "matplotlib", "rich", "safetensors", "fastapi", "PIL"}


def loaded_by(package: str, *words: str) -> tuple[str, set[str]]:
    code = (
        f"import sys; from {package}.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print('LOADED', *sorted(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    told, _, modules = done.stdout.partition("LOADED ")
    return told, set(modules.split())


@pytest.mark.parametrize("package", TABLES)
@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_imports_no_slow_module(package: str, word: str) -> None:
    told, modules = loaded_by(package, word)
    assert not modules & SLOW
    if word == "--help":
        assert all(f"    {name} " in told or f"    {name}\n" in told for name in TABLES[package])


@pytest.mark.parametrize(
    "words",
    [
        ("init", "STORE", "--dim", "4"),
        ("add", "STORE", "--caption", "a red cup", "--embedding", "VECTOR"),
        ("query", "STORE", "--text", "cup"),
        ("query", "STORE", "--like", "1"),
        ("query", "STORE", "--near", "1", "2", "--radius", "5"),
        ("ask", "STORE", "where is the cup?"),
        ("stats", "STORE"),
        ("query", "--help"),
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_small_stores_answer_without_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    store = tmp_path / "store"
    (tmp_path / "vector.json").write_text("[1, 0, 0, 0]")
    from memory import Memory, MemoryStore

    if words[0] != "init":
        with MemoryStore.open(store, dim=4) as open_store:
            open_store.add([Memory(time_ns=1, caption="a blue cup", embedding=[0.0, 1.0, 0.0, 0.0])])
    places = {"STORE": str(store), "VECTOR": str(tmp_path / "vector.json")}
    _, modules = loaded_by("memory", *(places.get(word, word) for word in words))
    assert "memory" in modules
    assert "torch" not in modules


@pytest.mark.parametrize(
    ("name", "command"), [(name, one) for table in TABLES.values() for name, one in table.items()]
)
def test_every_command_has_its_module(name: str, command: Command) -> None:
    assert command.help.endswith((".", "..."))
    assert callable(importlib.import_module(command.module).add_parser), name


@pytest.mark.parametrize(("package", "word"), [("perception", "live"), ("memory", "ask")])
def test_ctrl_c_during_imports_prints_one_line(
    package: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = importlib.import_module(f"{package}.cli").main

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main([word]) == 130
    assert capsys.readouterr().err.strip().endswith(": interrupted")
