"""Console command ``perceive``: init, detect, track, eval, train, simulate, export, doctor …"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from perception.cli.commands import COMMANDS
from perception.errors import PerceptionError
from sparse_core import __version__
from sparse_core.commands import declare, run_command
from sparse_core.errors import SparseError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a finding or failure, 2 bad usage or input."""
    parser = argparse.ArgumentParser(
        prog="perceive", description="Sparse 3-D object detection in LiDAR point clouds."
    )
    parser.add_argument("--version", action="version", version=f"perceive (Sparsight) {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    declare(commands, COMMANDS, sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    errors = (PerceptionError, SparseError, ImportError, ValueError, OSError, FloatingPointError)
    return run_command("perceive", options, errors)


if __name__ == "__main__":
    raise SystemExit(main())
