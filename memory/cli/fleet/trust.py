"""``recall trust``: set how much a robot is trusted."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import UsageError, add_command, print_json, say, split_words, undoing
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "trust", run, words="ROBOT TRUST")
    parser.add_argument("--why", default="", help="reason, kept in the log")


def run(options: argparse.Namespace) -> int:
    """Set the trust of a robot."""
    folder, (robot, number) = split_words(options, least=2, most=2)
    try:
        trust = float(number)
    except ValueError as error:
        raise UsageError(f"TRUST must be a number from 0 to 1, got {number!r}") from error
    with MemoryStore.open(folder, create=False) as store:
        operation = store.trust(robot, trust, why=options.why)
    if options.json:
        print_json({"robot": robot, "trust": trust, "operation": operation})
    else:
        say(f"trust of {robot} is now {trust:g}; undo with: {undoing(folder, operation)}")
    return 0
