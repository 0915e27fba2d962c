"""``recall undo``: undo operations; without a number, list them."""

from __future__ import annotations

import argparse
from collections import deque
from typing import Any

from memory.cli.console import add_command, counted, integers, output, print_json, say, split_words, undoing
from memory.exchange.times import format_time
from memory.persistence.log.journal import LogEntry
from memory.persistence.opening import open_checked
from sparse_core.common.table import Table

_LOG_PORTION = 5000


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "undo", run, words="[OPERATION...]")
    parser.add_argument(
        "--last", type=int, default=20, metavar="N", help="number of operations to list (default: 20)"
    )


def run(options: argparse.Namespace) -> int:
    """Undo the operations, latest first."""
    folder, words = split_words(options, most=None)
    operations = sorted(set(integers(words, "operation")), reverse=True)
    if not operations:
        return _list(folder, options)
    undone = {}
    with open_checked(folder, create=False) as database:
        for operation in operations:
            undone[operation] = database.undo(operation)
            if not options.json:
                say(f"undid operation {operation}; redo with: {undoing(folder, undone[operation])}")
    if options.json:
        print_json({"undone": [{"operation": old, "by": new} for old, new in undone.items()]})
    return 0


def _list(folder: Any, options: argparse.Namespace) -> int:
    last: deque[LogEntry] = deque(maxlen=max(options.last, 1))
    with open_checked(folder, readonly=True) as database:
        after = 0
        while entries := database.log(after, limit=_LOG_PORTION):
            last.extend(entries)
            after = entries[-1].generation
    if options.json:
        print_json({"operations": [_to_json(entry) for entry in last]})
        return 0
    rows = [
        [
            str(entry.generation),
            format_time(entry.time_ns, digits=0),
            _name(entry),
            _ids(entry.added),
            _why(entry),
        ]
        for entry in last
    ]
    columns = ("operation", "when", "what", "new ids", "detail")
    title = f"last {len(rows)} operations"
    output().print(Table(columns, rows, title=title, right=["operation"]))
    return 0


def _to_json(entry: LogEntry) -> dict[str, Any]:
    return {
        "operation": entry.generation,
        "time": format_time(entry.time_ns),
        "name": entry.operation,
        "new_ids": list(entry.added[:1]) + list(entry.added[-1:]),
        "undoes": entry.undoes,
        "detail": entry.readable_detail(),
    }


def _name(entry: LogEntry) -> str:
    return entry.operation if entry.undoes is None else f"{entry.operation} of {entry.undoes}"


def _ids(added: range) -> str:
    if not added:
        return ""
    return str(added[0]) if len(added) == 1 else f"{added[0]}-{added[-1]}"


def _why(entry: LogEntry) -> str:
    detail = entry.readable_detail()
    if entry.operation == "area":
        return f"{detail.get('name', '')}{' removed' if detail.get('removed') else ''}"
    if entry.operation == "trust":
        return f"{detail.get('robot', '')}: {detail.get('trust', '')}"
    reasons = detail.get("reasons")
    return counted(len(reasons)) if isinstance(reasons, dict) else str(detail.get("reason", ""))
