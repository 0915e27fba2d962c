"""Console command ``perceive``: init, detect, track, eval, train, simulate, export, doctor …"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from perception.cli.commands import COMMANDS
from perception.cli.extras import check_extras
from perception.errors import PerceptionError, ScanWarning
from sparse_core import __version__
from sparse_core.common.commands import declare, run_command, run_program, sleep_while_waiting
from sparse_core.common.parser import CommandParser
from sparse_core.errors import SparseError

#: Commands that print the warnings of detections themselves.
_SHOW_WARNINGS = ("detect", "live")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 success, 1 findings or skipped scans, 2 bad usage or input, 130 after SIGINT, 143
        after SIGTERM.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_program("perceive", lambda: _run(words))


def _run(words: list[str]) -> int:
    try:
        check_extras(words)
    except ImportError as error:
        print(f"perceive {words[0]}: {error}", file=sys.stderr)
        return 2
    sleep_while_waiting()
    parser = CommandParser(
        prog="perceive",
        description="Detect and track objects in LiDAR point clouds, on your scans or as they arrive.",
        epilog="Start with: perceive demo. Help for a command: perceive COMMAND --help.",
    )
    parser.add_argument("--version", action="version", version=f"perceive (Sparsight) {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # For the commands that run others, and for `completion`.
    parser.set_defaults(main=main, parser=parser, verbosity=0)
    declare(commands, COMMANDS, words)
    options = parser.parse_args(words)
    # These import rich, which --help does not need.
    from perception.cli.console import scan_warnings_logged
    from sparse_core.common.console import log_to_console

    log_to_console(options.verbosity)
    errors = (PerceptionError, SparseError, ImportError, ValueError, OSError, FloatingPointError)
    with warnings.catch_warnings(), scan_warnings_logged():
        warnings.simplefilter("ignore" if options.command in _SHOW_WARNINGS else "default", ScanWarning)
        return run_command("perceive", options, errors)


if __name__ == "__main__":
    raise SystemExit(main())
