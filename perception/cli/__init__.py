"""Console command ``perceive``: init, detect, track, eval, train, simulate, export, doctor …"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from perception.cli.commands import COMMANDS
from perception.errors import PerceptionError
from sparse_core import __version__
from sparse_core.commands import declare, failure
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
    try:
        return int(options.run(options))
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (PerceptionError, SparseError, ImportError, ValueError, OSError, FloatingPointError) as error:
        print(f"perceive {options.command}: {failure(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"perceive {options.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
