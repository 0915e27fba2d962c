"""``recall stats``: count the memories of a store."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from memory.cli.console import add_command, output, print_json, shown, split_words
from memory.exchange.times import format_time
from memory.persistence.database import Database
from memory.persistence.opening import open_checked
from memory.wording.words import truncated
from sparse_core.common.table import Table

_LABELS_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(commands, "stats", run)


def run(options: argparse.Namespace) -> int:
    """Print the counts."""
    folder, _ = split_words(options)
    with open_checked(folder, readonly=True) as database:
        found = {
            "store": shown(folder if database.shared else database.folder),
            "dim": database.dim,
            **database.stats().to_json(),
        }
        found |= _columns(database)
    if options.json:
        print_json(found)
    else:
        output().print(Table(("what", "how much"), _rows(found), title=f"{found['store']}"))
    return 0


def _columns(database: Database) -> dict[str, Any]:
    labels: Counter[str] = Counter()
    first: int | None = None
    last: int | None = None
    after = 0
    while len((columns := database.scan_columns(after)).ids):
        after = int(columns.ids[-1])
        labels.update(columns.labels)
        low, high = int(columns.time_ns.min()), int(columns.time_ns.max())
        first = low if first is None else min(first, low)
        last = high if last is None else max(last, high)
    return {
        "by_label": dict(labels.most_common()),
        "first_time": None if first is None else format_time(first),
        "last_time": None if last is None else format_time(last),
    }


def _rows(found: dict[str, Any]) -> list[list[str]]:
    labels = found["by_label"]
    shown = dict(list(labels.items())[:_LABELS_SHOWN])
    more = "" if len(labels) <= _LABELS_SHOWN else f" and {len(labels) - _LABELS_SHOWN} more"
    return [
        ["memories", f"{found['memories']:,}"],
        ["maps", _counts(found["by_map"])],
        ["kinds", _counts(found["by_kind"])],
        ["labels", _counts(shown) + more],
        ["from", found["first_time"] or ""],
        ["to", found["last_time"] or ""],
        ["vectors", _counts(found["vectors"]) + f" (default: {found['dim']} numbers)"],
        ["operations", f"{found['generation']:,}"],
        ["database", f"{found['file_bytes'] / 1e6:.1f} MB, {found['free_bytes'] / 1e6:.1f} MB of it free"],
        ["write-ahead log", f"{found['log_bytes'] / 1e6:.1f} MB"],
    ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{truncated(name) or '(none)'} {count:,}" for name, count in counts.items()) or "none"
