"""Programs of many commands: a command's module is imported when that command is called."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sparse_core.files import describe_file_error, write_failure


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


def failure(error: Exception, options: Any) -> str:
    """Return the line that a program prints when a command fails.

    Args:
        error: of the command.
        options: of the command. One that has ``--resume`` resumes what it writes to ``options.out``.
    """
    failed = write_failure(error) or error
    if not isinstance(failed, OSError):
        return str(failed)
    folder, file = getattr(options, "out", None), failed.filename
    resume = hasattr(options, "resume") and folder is not None and file is not None
    return describe_file_error(failed, resume=resume and Path(os.fsdecode(file)).is_relative_to(folder))
