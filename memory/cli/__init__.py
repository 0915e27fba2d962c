"""Command ``recall``: store and query robot memories from the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from memory.cli.commands import COMMANDS
from memory.errors import RecallError
from sparse_core import __version__
from sparse_core.common.commands import declare, run_command, run_program, sleep_while_waiting
from sparse_core.common.parser import CommandParser
from sparse_core.errors import SparseError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 success, 1 finding or failure, 2 bad usage or input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_program("recall", lambda: _run(words))


def _run(words: list[str]) -> int:
    sleep_while_waiting()
    parser = CommandParser(
        prog="recall",
        description="Store, search and share robot memories.",
        epilog="Give the store as first argument of a command, with --store, or in $RECALL_STORE.",
    )
    parser.add_argument("--version", action="version", version=f"recall (Sparsight) {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # recall demo runs other commands; completion describes them.
    parser.set_defaults(main=main, parser=parser, verbosity=0)
    declare(commands, COMMANDS, words)
    options = parser.parse_args(words)
    from sparse_core.common.console import log_to_console  # Imports rich, which --help does not need.

    log_to_console(options.verbosity)
    errors = (RecallError, SparseError, ImportError, ValueError, TypeError, OSError)
    return run_command("recall", options, errors)
