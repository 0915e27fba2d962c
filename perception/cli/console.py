"""Console and options that all commands share."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from perception.errors import ScanWarning
from sparse_core.common.console import LOG, add_verbosity_options

#: Width of tables in a pipe or file, in characters. The 80 that rich assumes there cut columns off.
_PIPE_WIDTH = 120
#: Tables go to standard output, so that they can be piped.
OUTPUT = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def counted(count: int, noun: str) -> str:
    """``1 frame``, ``2 frames``, for nouns whose plural ends with s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextmanager
def scan_warnings_logged() -> Iterator[None]:
    """Log warnings about scans instead of printing them with the place in the code."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, ScanWarning):
            LOG.warning("%s", message)
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


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
    """Add ``--precision float16|bfloat16|float32|int8``."""
    parser.add_argument(
        "--precision",
        choices=("float16", "bfloat16", "float32", "int8"),
        help="number format of features (default: float16 on a GPU, float32 on a CPU; a CPU also takes"
        " bfloat16 and int8)",
    )


def add_command(commands: Any, name: str, run: Any) -> argparse.ArgumentParser:
    """Add a command of ``commands.py``; its ``run(options)`` returns the exit status."""
    parser: argparse.ArgumentParser = commands.add_parser(name)
    add_verbosity_options(parser)
    parser.set_defaults(run=run)
    return parser
