"""Command ``completion``: a script that completes commands, options and file names in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparse_core.common.libraries import missing, module_available

#: Shells that shtab writes scripts for.
SHELLS = ("bash", "zsh", "tcsh")


def add_parser(commands: Any) -> None:
    """Declare the command; ``options.parser`` is the parser of the program with all its commands."""
    parser = commands.add_parser("completion")
    parser.add_argument("shell", choices=SHELLS, help="shell that reads the script")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not module_available("shtab"):
        raise ImportError(missing("shtab", "pip install 'sparsight[completion]'"))
    import shtab

    for argument in _arguments(options.parser):
        if argument.type is Path and argument.choices is None:
            argument.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(options.parser, options.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from _arguments(command)
        else:
            yield action
