"""``recall indexes``: list the vector indexes."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import add_command, output, print_json
from memory.index.kinds import KINDS, table_of_kinds


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(commands, "indexes", run, store=False)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    if options.json:
        print_json({"indexes": [kind.to_json() for kind in KINDS.values()]})
    else:
        output().print(table_of_kinds())
    return 0
