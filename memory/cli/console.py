"""What the commands share: where the store is, tables, progress, times."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from memory.cli.commands import COMMANDS
from memory.persistence.postgres.address import is_address, without_password
from memory.persistence.sqlite.files import FILE_NAME

STORE_VARIABLE = "RECALL_STORE"
#: Length of the vectors of a new store where nothing says it.
DIM = 256
#: Width of tables in a pipe or file, in characters; the 80 that rich assumes there cut columns off.
_PIPE_WIDTH = 140
Report = Callable[[int, int], None]


class UsageError(ValueError):
    """The command line lacks something."""


def add_command(
    commands: Any, name: str, run: Any, *, words: str = "", store: bool = True
) -> argparse.ArgumentParser:
    """A sub-command of :data:`COMMANDS` whose ``run(options)`` returns the exit status.

    Args:
        commands: of the main parser.
        name: of the command.
        run: the function.
        words: what it takes beside options and the store, for the usage line.
        store: whether it works on one.
    """
    shown = " ".join(part for part in ("[STORE]" if store else "", words) if part)
    usage = f"recall {name} {shown} [options]".replace("  ", " ")
    help_text = COMMANDS[name].help
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text, usage=usage
    )
    if store or words:
        first = f"the store first, a folder or postgresql://… (or --store, or ${STORE_VARIABLE})"
        explained = first if store else ""
        explained += f"{', then ' if store and words else ''}{words}"
        parser.add_argument("words", nargs="*", metavar=shown, help=explained)
    if store:
        parser.add_argument("--store", type=place, help="folder of the store, or postgresql://… of a server")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(run=run)
    return parser


def place(word: str) -> Path | str:
    """A folder, or the address of a database of a server as it is."""
    return word if is_address(word) else Path(word)


def split_words(
    options: argparse.Namespace, least: int = 0, most: int | None = 0
) -> tuple[Path | str, list[str]]:
    """Where the store is, and the other words.

    The first word is the store, unless ``--store`` is given, or there are just as many words as the command
    takes and the environment names the store.

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
        raise UsageError(f"which store? Give its folder first, with --store or in ${STORE_VARIABLE}")
    if len(words) < least:
        hint = "" if holds_store(store) or options.store else f" (the store is taken to be {shown(store)})"
        raise UsageError(f"something is missing{hint}; see recall {options.command} --help")
    if most is not None and len(words) > most:
        raise UsageError(f"too many words: {' '.join(words[most:])!r}; see recall {options.command} --help")
    return store, words


def holds_store(path: str | Path) -> bool:
    """Whether there is a store in a folder; at an address, one may be."""
    return is_address(path) or (Path(path) / FILE_NAME).is_file()


def shown(store: str | Path) -> str:
    """A store as messages name it: without a password."""
    return without_password(str(store))


def undoing(store: str | Path, operations: object) -> str:
    """The command that takes operations back, as it is to be typed.

    Args:
        store: that they are of; left out where the environment names it.
        operations: numbers and ranges.
    """
    named = os.environ.get(STORE_VARIABLE)
    word = "" if named and place(named) == store else f"{shlex.quote(shown(store))} "
    return f"recall undo {word}{operations}"


def counted(count: int, one: str = "memory", many: str = "memories") -> str:
    """``1 memory``, ``2 memories``."""
    return f"{count:,} {one if count == 1 else many}"


def integers(words: Sequence[str], what: str) -> list[int]:
    """Numbers, and ranges of them such as ``12-15``.

    Raises:
        UsageError: a word is none.
    """
    found: list[int] = []
    for word in words:
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise UsageError(f"{word!r} is no {what}: expected a number or a range such as 12-15")
        found += range(int(first), int(last or first) + 1)
    return found


def output() -> Console:
    """For tables, on standard output as it is now."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, file=sys.stdout)


def remark(text: str, style: str = "yellow") -> None:
    """A line for the person at the terminal, on standard error."""
    Console(file=sys.stderr).print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """A line on standard output, as it is."""
    output().print(text, highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, allow_nan=False))


@contextmanager
def progress(description: str) -> Iterator[Report]:
    """A bar on standard error, drawn only on a terminal; yields ``report(done, total)``."""
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(escape(description), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
