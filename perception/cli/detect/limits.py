"""``perceive detect --limits``: more objects per frame, and a summary of frames that reached a limit."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from perception.cli.options import number_type
from sparse_core.common.console import LOG


def add_limits_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--limits``."""
    parser.add_argument(
        "--limits",
        type=number_type(lambda value: 0 < value < math.inf, "a positive number"),
        metavar="FACTOR",
        help="multiply the limits of pillars, proposals and boxes per frame, for crowded scenes (default: 1)",
    )


class LimitCount:
    """Count of the frames that reached a limit."""

    def __init__(self) -> None:
        self._frames = self._reached = 0
        self._settings: Counter[str] = Counter()

    def add(self, record: Mapping[str, Any]) -> None:
        """Count the record of a frame."""
        self._frames += 1
        self._reached += bool(record["limits_reached"])
        self._settings.update(record["limits_reached"])

    def warn(self) -> None:
        """Log a warning if a frame reached a limit."""
        if self._reached:
            named = ", ".join(f"{name} in {count}" for name, count in sorted(self._settings.items()))
            LOG.warning(
                "%d of %d frames reached a limit (%s), so weak or far objects may be missing."
                " Raise the limits with --limits 2.",
                self._reached,
                self._frames,
                named,
            )
