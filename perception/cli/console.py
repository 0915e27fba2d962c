"""Consoles, log output and options that all commands share."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: Width of tables in a pipe or file, in characters. The 80 that rich assumes there cut columns off.
_PIPE_WIDTH = 120
#: Tables go to standard output, so that they can be piped.
OUTPUT = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
#: Progress bars and log messages go to standard error.
REMARKS = Console(stderr=True)
#: What commands report besides their results.
LOG = logging.getLogger(__name__)

_PACKAGES = ("sparse_core", "perception", "memory")
_STYLES = {logging.DEBUG: "dim", logging.WARNING: "yellow", logging.ERROR: "red"}


class _ConsoleHandler(logging.Handler):
    """Print log messages on standard error, coloured by level."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        text = self.format(record)
        if record.levelno == logging.WARNING:
            text = f"warning: {text}"
        elif record.levelno == logging.DEBUG:
            text = f"{record.name}: {text}"
        style = _STYLES.get(record.levelno)
        REMARKS.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


_HANDLER = _ConsoleHandler()


def log_to_console(verbosity: int) -> None:
    """Print the log messages of our packages on standard error.

    Args:
        verbosity: -1 prints errors only, 0 also warnings and remarks of commands, 1 all messages.
    """
    for name in _PACKAGES:
        package = logging.getLogger(name)
        package.setLevel(logging.DEBUG if verbosity > 0 else logging.WARNING)
        if _HANDLER not in package.handlers:
            package.addHandler(_HANDLER)
    LOG.setLevel({-1: logging.ERROR, 0: logging.INFO}.get(verbosity, logging.DEBUG))
    _HANDLER.setLevel(logging.ERROR if verbosity < 0 else logging.DEBUG)


def progress_bar() -> Progress:
    """Return a bar with a count and the time left; it is drawn on a terminal only, and not with ``-q``."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=REMARKS,
        disable=not (REMARKS.is_terminal and LOG.isEnabledFor(logging.INFO)),
    )


def add_weights_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--weights NAME|FILE``."""
    parser.add_argument(
        "--weights",
        default="pointpillars-kitti",
        help="name of shipped weights, or .safetensors file (default: pointpillars-kitti)",
    )


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--device cpu|cuda``."""
    parser.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="device to run on (default: cpu)"
    )


def add_precision_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision float16|bfloat16|float32``."""
    parser.add_argument(
        "--precision",
        choices=("float16", "bfloat16", "float32"),
        help="number format of features (default: float16 on a GPU, float32 on a CPU; a CPU also takes"
        " bfloat16)",
    )


def add_command(commands: Any, name: str, run: Any) -> argparse.ArgumentParser:
    """Add a command of ``commands.py``; its ``run(options)`` returns the exit status."""
    parser: argparse.ArgumentParser = commands.add_parser(name)
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "-q",
        "--quiet",
        dest="verbosity",
        action="store_const",
        const=-1,
        help="print only results and errors",
    )
    level.add_argument(
        "-v", "--verbose", dest="verbosity", action="store_const", const=1, help="also print debug messages"
    )
    parser.set_defaults(run=run, verbosity=0)
    return parser
