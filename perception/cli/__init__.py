"""Console command ``perceive``: init, detect, track, eval, train, simulate, export, doctor …"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from perception.cli.commands import COMMANDS
from perception.errors import PerceptionError, ScanWarning
from sparse_core import __version__
from sparse_core.commands import declare
from sparse_core.errors import SparseError
from sparse_core.interruption import Interrupted

#: Commands that print the warnings of detections themselves.
_SHOW_WARNINGS = ("detect", "live")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a finding or failure, 2 bad usage or input.

    A command that a signal stopped returns 130 (SIGINT) or 143 (SIGTERM).
    """
    parser = argparse.ArgumentParser(
        prog="perceive", description="Sparse 3-D object detection in LiDAR point clouds."
    )
    parser.add_argument("--version", action="version", version=f"perceive (Sparsight) {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    declare(commands, COMMANDS, sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if options.command in _SHOW_WARNINGS else "default", ScanWarning)
            return int(options.run(options))
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (PerceptionError, SparseError, ImportError, ValueError, OSError, FloatingPointError) as error:
        print(f"perceive {options.command}: {_told(error)}", file=sys.stderr)
        return 2
    except Interrupted as error:
        print(f"perceive {options.command}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"perceive {options.command}: interrupted", file=sys.stderr)
        return 130


def _told(error: Exception) -> str:
    """What went wrong; the system's own words for files name neither the reason nor the way out."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    place = os.fspath(error.filename)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{place}: there is a file where a folder is needed; name another folder"
    if isinstance(error, IsADirectoryError):
        return f"{place}: there is a folder where a file is needed; name another file"
    if isinstance(error, PermissionError):
        return f"{place}: no permission; name another place, or change its rights"
    return f"{place}: {error.strerror}"


if __name__ == "__main__":
    raise SystemExit(main())
