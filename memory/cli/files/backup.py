"""``recall backup``: copy a store, also while it is in use."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from memory.cli.console import add_command, counted, print_json, progress, say, split_words
from memory.persistence.opening import open_database
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(commands, "backup", run, words="FOLDER")


def run(options: argparse.Namespace) -> int:
    """Copy the store and check the copy."""
    folder, words = split_words(options, least=1, most=1)
    target = Path(words[0])
    with MemoryStore.open(folder, readonly=True) as store, progress("copying") as report:
        count, file = len(store), store.backup(target, report)
        if store.database.shared:
            return _print_dump(file, count, as_json=options.json)
    with open_database(target, readonly=True) as copy, progress("checking the copy"):
        report_of_copy = copy.check()
        count = copy.count()
    if options.json:
        print_json({"backup": str(target), "memories": count, "check": report_of_copy.to_json()})
    else:
        say(f"{counted(count)} in {target}")
        if not report_of_copy.ok:
            say(str(report_of_copy))
    return 0 if report_of_copy.ok else 1


def _print_dump(file: Path, count: int, *, as_json: bool) -> int:
    if as_json:
        print_json({"backup": str(file), "memories": count})
    else:
        say(f"about {counted(count)} in {file}; restore it with pg_restore (docs/memory-server.md)")
    return 0
