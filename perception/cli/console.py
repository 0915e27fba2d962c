"""What the commands share: a console on standard error, a progress bar, a device option."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: Width of tables in a pipe or file, in characters; the 80 that rich assumes there cut columns off.
_PIPE_WIDTH = 120
#: Tables go to standard output, so that they can be piped.
OUTPUT = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
#: Progress and remarks go to standard error.
REMARKS = Console(stderr=True)


def progress_bar() -> Progress:
    """A bar with a count and the time left, drawn only on a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=REMARKS,
        disable=not REMARKS.is_terminal,
    )


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """``--device cpu|cuda``."""
    parser.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where to run (default: cpu)"
    )


def add_precision_option(parser: argparse.ArgumentParser) -> None:
    """``--precision float16|bfloat16|float32``."""
    parser.add_argument(
        "--precision",
        choices=("float16", "bfloat16", "float32"),
        help="of the features (default: float16 on a GPU, float32 on a CPU, where bfloat16 is the other one)",
    )


def add_command(commands: Any, name: str, run: Any) -> argparse.ArgumentParser:
    """Add a command of the table in ``commands.py``; its ``run(options)`` returns the exit status."""
    parser: argparse.ArgumentParser = commands.add_parser(name)
    parser.set_defaults(run=run)
    return parser
