"""Programs of many commands: a command's module is imported when that command is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command of a program.

    Attributes:
        module: whose ``add_parser(commands)`` declares it.
        help: a sentence or more.
    """

    module: str
    help: str


def declare(commands: Any, known: Mapping[str, Command], arguments: Sequence[str]) -> None:
    """Declare all commands by their names, and what the called one takes.

    Modules of commands import what they work with, which takes seconds: ``--help`` imports none of them.

    Args:
        commands: of ``argparse.ArgumentParser.add_subparsers``.
        known: the commands by name.
        arguments: of the program; the first that is no option names the command.
    """
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in known.items():
        if name == called:
            importlib.import_module(command.module).add_parser(commands)
        else:
            commands.add_parser(name, help=command.help)
