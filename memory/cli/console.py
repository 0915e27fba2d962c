"""Parts that commands share: the store argument, tables and progress bars."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import TaskProgressColumn

from memory.persistence.postgres.address import is_address, without_password
from memory.persistence.sqlite.files import FILE_NAME, LOCK_NAME
from sparse_core.common.console import LOG, add_verbosity_options, progress_bar

STORE_VARIABLE = "RECALL_STORE"
#: Default vector length of a new store.
DIM = 256
#: Table width in a pipe or file, in characters. The 80 that rich assumes there cut off columns.
_PIPE_WIDTH = 140
Report = Callable[[int, int], None]


class UsageError(ValueError):
    """Bad command line."""


def add_command(
    commands: Any, name: str, run: Any, *, words: str = "", store: bool = True
) -> argparse.ArgumentParser:
    """Add a command of ``commands.py`` to the parser.

    Args:
        commands: subparsers of the main parser.
        name: command name.
        run: ``run(options)`` returns the exit status.
        words: positional arguments after the store, for the usage line.
        store: True if the command works on a store.
    """
    shown = " ".join(part for part in ("[STORE]" if store else "", words) if part)
    usage = f"recall {name} {shown} [options]".replace("  ", " ")
    parser: argparse.ArgumentParser = commands.add_parser(name, usage=usage)
    if store or words:
        help_text = f"STORE: folder or postgresql:// address (or use --store or ${STORE_VARIABLE})"
        parser.add_argument("words", nargs="*", metavar=shown, help=help_text if store else None)
    if store:
        parser.add_argument("--store", type=place, help="store folder or postgresql:// address")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    add_verbosity_options(parser)
    parser.set_defaults(run=run, usage=f"recall {name} {shown}".rstrip())
    return parser


def place(word: str) -> Path | str:
    """Return a server address unchanged, anything else as a path."""
    return word if is_address(word) else Path(word)


def split_words(
    options: argparse.Namespace, least: int = 0, most: int | None = 0
) -> tuple[Path | str, list[str]]:
    """Return the store and the other positional arguments.

    The first word is the store unless ``--store`` is given. With ``RECALL_STORE`` set, the first word is
    the store only if it holds one, or if there are more words than the command takes.

    Raises:
        UsageError: no store, or too few or too many words.
    """
    words = list(options.words)
    environment = os.environ.get(STORE_VARIABLE)
    if options.store is not None:
        store = options.store
    elif words and (not environment or (most is not None and len(words) > most) or holds_store(words[0])):
        store = place(words.pop(0))
    elif environment:
        store = place(environment)
    else:
        raise UsageError(
            f"no store given. Name it first (recall {options.command} STORE ...), with --store or in"
            f" ${STORE_VARIABLE}"
        )
    advice = f"Use {options.usage} or see recall {options.command} --help"
    if most is None and not holds_store(store):
        other = next((word for word in words if not is_address(word) and holds_store(word)), None)
        if other is not None:
            raise UsageError(f"{shown(store)!r} is no store, but {other!r} is. {advice}")
    if len(words) < least:
        hint = "" if holds_store(store) or options.store else f" ({shown(store)!r} was read as the store)"
        raise UsageError(f"an argument is missing{hint}. {advice}")
    if most is not None and len(words) > most:
        text = " Search words with --text." if options.command == "query" else ""
        raise UsageError(f"unexpected arguments: {' '.join(words[most:])!r}.{text} {advice}")
    return store, words


def holds_store(path: str | Path) -> bool:
    """True if a folder holds a store. Server addresses are not checked."""
    return is_address(path) or (Path(path) / FILE_NAME).is_file()


def check_free(store: Path | str) -> None:
    """Raise ``UsageError`` if a new store would mix its files with others of a folder."""
    if isinstance(store, Path) and store.is_dir():
        # Creating a store can be interrupted, and the root of a volume has a folder "lost+found".
        own = (FILE_NAME, LOCK_NAME, "lost+found")
        other = next((file.name for file in sorted(store.iterdir()) if not file.name.startswith(own)), None)
        if other is not None:
            raise UsageError(
                f"{store} is no store, but holds other files, such as {other}. Give a new or empty folder"
            )


def shown(store: str | Path) -> str:
    """Return the store as messages name it, without a password."""
    return without_password(str(store))


def undoing(store: str | Path, operations: object) -> str:
    """Return the command that undoes operations, ready to paste.

    Args:
        store: omitted from the command if ``RECALL_STORE`` names it.
        operations: numbers and ranges.
    """
    named = os.environ.get(STORE_VARIABLE)
    word = "" if named and place(named) == store else f"{shlex.quote(shown(store))} "
    return f"recall undo {word}{operations}"


def counted(count: int, one: str = "memory", many: str = "memories") -> str:
    """``1 memory``, ``2 memories``."""
    return f"{count:,} {one if count == 1 else many}"


def integers(words: Sequence[str], what: str) -> list[int]:
    """Return the numbers that words list; ``12-15`` is a range."""
    found: list[int] = []
    for word in words:
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise UsageError(f"{word!r} is not a valid {what}. Give a number or a range such as 12-15")
        found += range(int(first), int(last or first) + 1)
    return found


def warn_about_server(store: Path | str, findings: Sequence[str]) -> None:
    """Log what the opening found if the store is on a server. A store in a folder logs this itself."""
    if is_address(store):
        for finding in findings:
            LOG.warning(finding)


def output() -> Console:
    """Return a console for tables on the current standard output."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, file=sys.stdout)


def say(text: str) -> None:
    """Print a line to standard output, without markup."""
    output().print(text, highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a JSON document to standard output."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, allow_nan=False))


@contextmanager
def progress(description: str) -> Iterator[Report]:
    """Show a progress bar and log how long the work took; yields ``report(done, total)``."""
    started_s = time.monotonic()
    with progress_bar(TaskProgressColumn(), transient=True) as bar:
        task = bar.add_task(escape(description), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
    LOG.debug("%s took %.1f s", description, time.monotonic() - started_s)
