"""Console command ``recall``: a store of memories from the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from memory.cli.commands import COMMANDS
from memory.cli.parser import CommandParser
from memory.errors import RecallError
from sparse_core import __version__
from sparse_core.commands import declare, failure
from sparse_core.errors import SparseError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a finding or failure, 2 bad usage or input."""
    parser = argparse.ArgumentParser(
        prog="recall",
        description="A robot's memory: durable, searched by likeness, words, place and time.",
        epilog="The store is the first word after the command, or --store, or $RECALL_STORE.",
    )
    parser.add_argument("--version", action="version", version=f"recall (Sparsight) {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    declare(commands, COMMANDS, sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RecallError, SparseError, ImportError, ValueError, TypeError, OSError) as error:
        print(f"recall {options.command}: {failure(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"recall {options.command}: interrupted", file=sys.stderr)
        return 130
