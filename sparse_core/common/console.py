"""Log output, progress bars and the options ``-q`` and ``-v`` that ``perceive`` and ``recall`` share."""

from __future__ import annotations

import argparse
import logging

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

#: Progress bars and log messages go to standard error.
REMARKS = Console(stderr=True)
#: What commands report besides their results.
LOG = logging.getLogger("sparsight")

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


def add_verbosity_options(parser: argparse.ArgumentParser) -> None:
    """Add ``-q`` and ``-v``, which set ``options.verbosity`` to -1 or 1."""
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
    parser.set_defaults(verbosity=0)


def log_to_console(verbosity: int) -> None:
    """Print the log messages of our packages on standard error.

    Args:
        verbosity: -1 prints errors only, 0 also warnings and remarks of commands, 1 all messages.
    """
    for name in _PACKAGES:
        logging.getLogger(name).setLevel(logging.DEBUG if verbosity > 0 else logging.WARNING)
    for name in (*_PACKAGES, LOG.name):
        logger = logging.getLogger(name)
        if _HANDLER not in logger.handlers:
            logger.addHandler(_HANDLER)
    LOG.setLevel({-1: logging.ERROR, 0: logging.INFO}.get(verbosity, logging.DEBUG))
    _HANDLER.setLevel(logging.ERROR if verbosity < 0 else logging.DEBUG)


def progress_bar(count: ProgressColumn | None = None, *, transient: bool = False) -> Progress:
    """Return a bar with a count and the time left; it is drawn on a terminal only, and not with ``-q``.

    Args:
        count: column of the work done (default: done and total as numbers).
        transient: remove the bar when it ends.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn() if count is None else count,
        TimeRemainingColumn(),
        console=REMARKS,
        disable=not (REMARKS.is_terminal and LOG.isEnabledFor(logging.INFO)),
        transient=transient,
    )
