"""Options that several commands share: where a detector looks, and other names of classes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

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


def add_rename_option(parser: argparse.ArgumentParser) -> None:
    """``--rename``."""
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="CLASS=NAME",
        help="what the data set calls a class of the detector, such as Car=car (repeatable)",
    )


def renames_of(texts: Sequence[str]) -> dict[str, str]:
    """Names by class.

    Raises:
        ValueError: not ``CLASS=NAME``.
    """
    found = {}
    for text in texts:
        name, equals, other = text.partition("=")
        if not (name and equals and other):
            raise ValueError(f"--rename must be CLASS=NAME such as Car=car, got {text!r}")
        found[name] = other
    return found
