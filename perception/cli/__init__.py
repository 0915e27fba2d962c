"""Console command ``perceive``: init, detect, track, eval, train, simulate, export, doctor …"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from perception.cli.commands import COMMANDS
from perception.errors import PerceptionError, ScanWarning
from sparse_core import __version__
from sparse_core.common.commands import declare, run_command, sleep_while_waiting
from sparse_core.errors import SparseError

#: Commands that print the warnings of detections themselves.
_SHOW_WARNINGS = ("detect", "live")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a finding or failure, 2 bad usage or input.

    A command that a signal stopped returns 130 (SIGINT) or 143 (SIGTERM).
    """
    sleep_while_waiting()
    parser = argparse.ArgumentParser(
        prog="perceive", description="Sparse 3-D object detection in LiDAR point clouds."
    )
    parser.add_argument("--version", action="version", version=f"perceive (Sparsight) {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # For the commands that run others.
    parser.set_defaults(main=main)
    declare(commands, COMMANDS, sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    if options.command == "completion":
        # Only here: a parser cannot be pickled, and `detect` sends its options to worker processes.
        options.parser = parser
    errors = (PerceptionError, SparseError, ImportError, ValueError, OSError, FloatingPointError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if options.command in _SHOW_WARNINGS else "default", ScanWarning)
        return run_command("perceive", options, errors)


if __name__ == "__main__":
    raise SystemExit(main())
