"""``recall mark``: say whether things are still where they were."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import add_command, counted, integers, print_json, say, split_words, undoing
from memory.exchange.times import parse_time
from memory.store import MemoryStore
from memory.types import STATES


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "mark", run, words="ID...")
    parser.add_argument("--state", choices=STATES, default="gone", help="what they are (default: gone)")
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="when that was found, by the robot's clock (default: the newest memory's)",
    )
    parser.add_argument("--why", default="", help="for recall explain; it stays in the log")


def run(options: argparse.Namespace) -> int:
    """Mark them."""
    folder, words = split_words(options, least=1, most=None)
    ids = integers(words, "id")
    at = None if options.at is None else parse_time(options.at)
    with MemoryStore.open(folder, create=False) as store:
        operation = store.mark(ids, options.state, at_ns=at, why=options.why)
    if options.json:
        print_json({"marked": ids, "state": options.state, "operation": operation})
    else:
        say(f"marked {counted(len(ids))} {options.state}; take it back with: {undoing(folder, operation)}")
    return 0
