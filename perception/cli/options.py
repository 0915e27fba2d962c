"""The option that says where a detector looks."""

from __future__ import annotations

import argparse

_NONE = "none"


def add_range_option(parser: argparse.ArgumentParser) -> None:
    """``--range none`` or six numbers."""
    parser.add_argument(
        "--range",
        metavar="RANGE",
        help="where to look: 'none' for no bounds in x and y, or X0,Y0,Z0,X1,Y1,Z1 in metres;"
        " --range=-51.2,... with a minus (default: as trained)",
    )


def range_of(text: str) -> tuple[float, ...] | None:
    """The range that was asked for; None: no bounds.

    Raises:
        ValueError: neither ``none`` nor six numbers.
    """
    if text.strip().lower() == _NONE:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 6:
        raise ValueError(
            f"--range must be 'none' or six numbers X0,Y0,Z0,X1,Y1,Z1 in metres, got {text!r}; as in"
            " --range=-51.2,-51.2,-3,51.2,51.2,1"
        )
    return numbers
