"""Console command ``recall``: a store of memories from the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from memory.cli.commands import COMMANDS
from memory.cli.parser import CommandParser
from memory.errors import RecallError
from sparse_core import __version__
from sparse_core.common.commands import declare, run_command, sleep_while_waiting
from sparse_core.errors import SparseError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a finding or failure, 2 bad usage or input."""
    sleep_while_waiting()
    parser = argparse.ArgumentParser(
        prog="recall",
        description="A robot's memory: durable, searched by likeness, words, place and time.",
        epilog="The store is the first word after the command, or --store, or $RECALL_STORE.",
    )
    parser.add_argument("--version", action="version", version=f"recall (Sparsight) {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    # For the commands that run others, and for `completion`.
    parser.set_defaults(main=main, parser=parser)
    declare(commands, COMMANDS, sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    errors = (RecallError, SparseError, ImportError, ValueError, TypeError, OSError)
    return run_command("recall", options, errors)
