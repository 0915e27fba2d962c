"""``--rename CLASS=NAME``: what a data set calls a detector's classes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


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
