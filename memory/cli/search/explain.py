"""``recall explain``: explain why a memory was kept, merged or forgotten."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from memory.cli.console import UsageError, add_command, output, print_json, say, split_words
from memory.cli.listing import memories_table, visits_table
from memory.errors import UnknownMemoryError
from memory.exchange.records import record_of
from memory.exchange.times import format_time
from memory.store import MemoryStore
from memory.types import Explanation, Memory
from sparse_core.common.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(commands, "explain", run, words="ID")


def run(options: argparse.Namespace) -> int:
    """Print the memory, the reasons and its history."""
    folder, words = split_words(options, least=1, most=1)
    if not words[0].isdecimal():
        raise UsageError(f"{words[0]!r} is not an id. Ids are numbers; recall query lists them")
    id = int(words[0])
    with MemoryStore.open(folder, readonly=True) as store:
        found = store.explain(id)
        try:
            memory: Memory | None = store.get([id])[0]
        except UnknownMemoryError:
            memory = None
    if options.json:
        record = None if memory is None else record_of(memory, vectors=False)
        print_json({**asdict(found), "memory": record})
    else:
        _print(found, memory)
    return 0


def _print(found: Explanation, memory: Memory | None) -> None:
    if memory is not None:
        output().print(memories_table("", [memory]))
    merged = "" if found.into is None else f" into {found.into}"
    say(f"{found.id}: {found.status}{merged}")
    for reason in found.reasons:
        say(f"  - {reason}")
    if found.parts:
        say("  " + ", ".join(f"{name} {value:g}" for name, value in found.parts.items()))
    rows = [[format_time(moment, digits=0), operation, detail] for moment, operation, detail in found.history]
    output().print(Table(("when", "operation", "detail"), rows, title="history"))
    if memory is not None and memory.visits:
        output().print(visits_table(memory))
