"""Options that several commands share: numbers, detection range and class names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

_NONE = "none"


def number_type(accepts: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """Return an argparse type for numbers; ``expected`` describes the accepted ones, for the error."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not accepts(value):
            raise argparse.ArgumentTypeError(f"must be {expected}, got {text!r}")
        return value

    return parse


def add_range_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--range none`` or six numbers."""
    parser.add_argument(
        "--range",
        metavar="RANGE",
        help="detection range X0,Y0,Z0,X1,Y1,Z1 in metres, such as --range=-51.2,-51.2,-3,51.2,51.2,1;"
        " 'none' is unbounded in x and y (default: as trained)",
    )


def range_of(text: str) -> tuple[float, ...] | None:
    """Parse a range; None means unbounded.

    Raises:
        ValueError: the text is neither ``none`` nor six numbers, minimum below maximum.
    """
    if text.strip().lower() == _NONE:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 6:
        raise ValueError(
            f"--range must be 'none' or six numbers X0,Y0,Z0,X1,Y1,Z1 in metres, such as"
            f" --range=-51.2,-51.2,-3,51.2,51.2,1; got {text!r}"
        )
    if not all(low < high for low, high in zip(numbers[:3], numbers[3:], strict=True)):
        raise ValueError(f"--range X0,Y0,Z0,X1,Y1,Z1 needs X0 < X1, Y0 < Y1 and Z0 < Z1, got {text!r}")
    return numbers


def add_topic_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--topic``."""
    parser.add_argument(
        "--topic",
        help="topic of point clouds, if a bag has several; for captures the sensor's ADDRESS:PORT",
    )


def add_picture_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-pictures``, ``--rerun`` and ``--mcap``."""
    parser.add_argument("--no-pictures", action="store_true", help="write neither pictures nor player.html")
    parser.add_argument(
        "--rerun", metavar="FILE.rrd", help="also record for Rerun; 'live' opens its viewer (extra 'rerun')"
    )
    parser.add_argument(
        "--mcap", type=Path, metavar="FILE.mcap", help="also record for Foxglove (extra 'foxglove')"
    )


def add_rename_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--rename``."""
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="CLASS=NAME",
        help="name of a detector class in the data set, such as Car=car (repeatable)",
    )


def renames_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``CLASS=NAME`` texts to names by class; raise ``ValueError`` for another form."""
    found = {}
    for text in texts:
        name, equals, other = text.partition("=")
        if not (name and equals and other):
            raise ValueError(f"--rename must be CLASS=NAME such as Car=car, got {text!r}")
        found[name] = other
    return found
