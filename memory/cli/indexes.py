"""``recall indexes``: the kinds of index, what each does, needs and costs."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import add_command, output, print_json
from memory.index.kinds import KINDS
from sparse_core.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(
        commands, "indexes", "List the kinds of index: what they do, need and cost.", run, store=False
    )


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    if options.json:
        print_json({"indexes": [kind.to_json() for kind in KINDS.values()]})
        return 0
    columns = ("index", "finds", "needs", "trains", "bytes a vector", "in a store")
    rows = [
        [
            kind.name,
            kind.finds,
            kind.needs + (" (not here)" if kind.missing else ""),
            "yes" if kind.trains else "no",
            str(kind.bytes_a_vector or ""),
            kind.why_not or "yes",
        ]
        for kind in KINDS.values()
    ]
    title = "kinds of index, at 256 numbers a vector"
    output().print(Table(columns, rows, title=title, right=["bytes a vector"]))
    return 0
