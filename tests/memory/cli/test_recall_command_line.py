"""Which store is meant, in which order words come, exit statuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.cli import main

Recall = Callable[..., Any]
COMMANDS = ("init", "add", "import", "query", "ask", "explain", "forget", "undo", "consolidate")
COMMANDS += ("stats", "export", "check", "backup", "bench")


def test_the_store_as_word_option_and_variable(
    recall: Recall, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recall("explain", store, 1).status == 0
    assert recall("explain", 1, "--store", store).status == 0
    assert recall("query", "--store", store, "--text", "door").status == 0
    assert recall("query", "--text", "door", store).status == 0
    monkeypatch.setenv("RECALL_STORE", str(store))
    assert recall("explain", 1).status == 0
    assert recall("query", "--text", "door").status == 0
    assert recall("ask", "last-seen", "door").status == 0
    assert recall("undo").status == 0
    assert recall("import", "--skip-bad", "first.jsonl").status == 0
    monkeypatch.setenv("RECALL_STORE", str(store.parent / "other"))
    assert recall("explain", store, 1).status == 0
    assert recall("import", store, "first.jsonl").status == 0
    assert recall("query", store).status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query"], "$RECALL_STORE"),
        (["import", "first.jsonl"], "'first.jsonl' was read as the store"),
        (["explain", "store"], "an argument is missing. Use recall explain [STORE] ID or see"),
        (["import", "first.jsonl", "store"], "'first.jsonl' is no store, but 'store' is. Use recall import"),
        (["ask", "where is it?", "store"], "'where is it?' is no store, but 'store' is"),
        (["query", "store", "mug"], "Search words with --text"),
        (["mark", "store", "2", "gone"], "Give it as --state gone"),
        (["add", "store", "--label", "a", "--embedding", "[1]"], "has 1 numbers, but the store's have 3"),
        (["explain", "store", "1", "2"], "unexpected arguments: '2'"),
        (["explain", "store", "one"], "'one' is not an id"),
        (["explain", "store", "99"], "no memory ever had the id 99"),
        (["query", "nowhere"], "or create a store with recall init"),
        (["query", "first.jsonl"], "is a file, but a store is a folder"),
        (["forget", "store", "1", "99"], "99"),
        (["forget", "store", "5-4"], "a range such as 12-15"),
        (["undo", "store", "77"], "77"),
        (["init", "store"], "already holds a store"),
    ],
)
def test_errors_are_one_line(recall: Recall, store: Path, arguments: list[str], message: str) -> None:
    done = recall(*arguments)
    assert (done.status, done.output) == (2, "")
    assert done.remarks.startswith(f"recall {arguments[0]}: ")
    assert message in done.remarks
    assert done.remarks.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert {"--json", "--quiet", "--verbose"} <= set(re.findall(r"--[a-z]+", shown))


@pytest.mark.parametrize(("option", "shown"), [("--quiet", False), ("-q", False), ("", True), ("-v", True)])
def test_verbosity(recall: Recall, store: Path, option: str, shown: bool) -> None:
    """Notes, warnings and debug messages appear as the option says; answers and errors always do."""
    record = {"time": "2026-01-01T10:00:00Z", "label": "door"}
    Path("a.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps(record | {'colour': 'red'})}\n")
    done = recall("import", "new", "a.jsonl", "--skip-bad", *option.split())
    assert done.status == 1
    assert "a.jsonl: 1 memory from 1 line; skipped 1 bad" in done.output
    assert "skipped: a.jsonl:2: unknown field 'colour'" in done.remarks
    assert ("created new with vector length 256" in done.remarks) == shown
    assert ("sparsight: importing a.jsonl took" in done.remarks) == (option == "-v")
    unknown = recall("query", store, "--label", "lamp", *option.split())
    assert "no memory matches" in unknown.output
    assert ("warning: " in unknown.remarks) == shown
    assert ("answered in" in unknown.remarks) == (option == "-v")
    missing = recall("explain", store, 99, *option.split())
    assert (missing.status, missing.remarks) == (2, "recall explain: no memory ever had the id 99\n")


def test_quiet_and_verbose_exclude_each_other(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["stats", str(store), "-q", "-v"])
    assert stopped.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ([], "stats      Count the memories of a store"),
        (["dance"], "no command 'dance'\n"),
        (["stat"], "no command 'stat'. Did you mean stats?"),
        (["query", "store", "--raduis", "2"], "unrecognized arguments: --raduis 2. Did you mean --radius?"),
        (["mark", "store", "--gone"], "unrecognized arguments: --gone\n"),
        (["query", "store", "--k", "x"], "All options: recall query --help"),
        (["init", "--radius"], "All options: recall init --help"),
    ],
)
def test_bad_usage_ends_with_two(
    arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert "usage: recall" in printed
    assert advice in printed


def test_an_interruption(recall: Recall, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memory.cli.files.stats.open_checked", interrupted)
    done = recall("stats", store)
    assert (done.status, done.remarks) == (130, "recall stats: interrupted\n")


def test_as_a_program_into_a_pipe_that_closes(repository: Path, store: Path) -> None:
    program = f"{sys.executable} -m memory.cli export {store} - --no-vectors | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program}"],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "{"
    assert done.stderr == ""
