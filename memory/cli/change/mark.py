"""``recall mark``: mark objects as present, moved, gone or unknown."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import (
    UsageError,
    add_command,
    counted,
    integers,
    print_json,
    say,
    split_words,
    undoing,
)
from memory.exchange.times import parse_time
from memory.store import MemoryStore
from memory.types import STATES


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "mark", run, words="ID...")
    parser.add_argument("--state", choices=STATES, default="gone", help="new state (default: gone)")
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="time of the observation, by the robot's clock (default: time of the newest memory)",
    )
    parser.add_argument("--why", default="", help="reason, kept in the log and shown by recall explain")


def run(options: argparse.Namespace) -> int:
    """Mark the memories."""
    folder, words = split_words(options, least=1, most=None)
    state = next((word for word in words if word in STATES), None)
    if state is not None:
        raise UsageError(f"{state!r} is a state, not an id. Give it as --state {state}")
    ids = integers(words, "id")
    at = None if options.at is None else parse_time(options.at)
    with MemoryStore.open(folder, create=False) as store:
        operation = store.mark(ids, options.state, at_ns=at, why=options.why)
    if options.json:
        print_json({"marked": ids, "state": options.state, "operation": operation})
    else:
        say(f"marked {counted(len(ids))} as {options.state}; undo with: {undoing(folder, operation)}")
    return 0
