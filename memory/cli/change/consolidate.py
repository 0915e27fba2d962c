"""``recall consolidate``: merge duplicates and forget over capacity."""

from __future__ import annotations

import argparse
from typing import Any

from memory import MemoryStore
from memory.cli.console import add_command, counted, output, print_json, progress, say, split_words, undoing
from memory.exchange.times import parse_time
from memory.store import Consolidated
from sparse_core.common.table import Table

_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "consolidate", run)
    parser.add_argument(
        "--now", metavar="TIME", help="time at which the age of memories is judged (default: now)"
    )


def run(options: argparse.Namespace) -> int:
    """Consolidate and print what changed."""
    folder, _ = split_words(options)
    now = None if options.now is None else parse_time(options.now)
    with MemoryStore.open(folder, create=False) as store, progress("consolidating") as report:
        before = len(store)
        done = store.consolidate(now_ns=now, progress=lambda what, part, total: report(part, total))
        after = len(store)
    if options.json:
        merged = [{"id": id, "sources": list(sources)} for id, sources in done.merged]
        forgotten = [{"id": id, "reason": reason} for id, reason in done.forgotten.items()]
        counts = {"memories_before": before, "memories": after}
        found = {**counts, "merged": merged, "forgotten": forgotten, "operations": done.generations}
        failed = [{"ids": list(ids), "reason": reason} for ids, reason in done.failed.items()]
        print_json({**found, "trimmed": done.trimmed._asdict(), "failed": failed})
        return 0
    _print(done)
    say(f"{counted(before)} before, {after:,} now")
    if done.trimmed.operations:
        count = counted(done.trimmed.operations, "operation", "operations")
        dropped = f"{done.trimmed.bytes / 1e6:.1f} MB of the log dropped"
        say(f"{count} up to number {done.trimmed.generation} can no longer be undone: {dropped}")
    if done.generations:
        say(f"undo with: {undoing(folder, _ranges(done.generations))}")
    return 0


def _print(done: Consolidated) -> None:
    if done.merged:
        rows = [[str(id), len(sources), ", ".join(map(str, sources))] for id, sources in done.merged[:_SHOWN]]
        title = f"{counted(len(done.merged), 'merge', 'merges')}{_first(len(done.merged))}"
        output().print(Table(("new id", "memories", "merged ids"), rows, title=title, right=["new id"]))
    if done.forgotten:
        lines = [[str(id), reason] for id, reason in list(done.forgotten.items())[:_SHOWN]]
        title = f"{len(done.forgotten)} forgotten{_first(len(done.forgotten))}"
        output().print(Table(("id", "why"), lines, title=title, right=["id"]))

    for ids, reason in list(done.failed.items())[:_SHOWN]:
        say(f"memories {', '.join(map(str, ids))} were not merged: {reason}")


def _first(count: int) -> str:
    return f", the first {_SHOWN}" if count > _SHOWN else ""


def _ranges(numbers: list[int]) -> str:
    """``1-3 7`` for 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
