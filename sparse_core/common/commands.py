"""Programs with subcommands: only the called command's module is imported."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sparse_core.common.files import describe_file_error, write_failure
from sparse_core.common.interruption import Interrupted

#: Variables of the waiting policy: OpenMP's own, GNU's, LLVM's and Intel's.
_WAIT_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
#: A thread of GNU's library spins 1,000 rounds (about 20 microseconds), then sleeps. Others sleep at once.
_SLEEP_SOON = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}


class Command(NamedTuple):
    """One command of a program.

    Attributes:
        module: defines ``add_parser(commands)``, which calls ``commands.add_parser(name)``.
        help: one or more sentences.
    """

    module: str
    help: str


def sleep_while_waiting() -> None:
    """Let OpenMP threads of torch sleep soon while they wait for each other.

    By default they spin for some milliseconds and block a core. Programs call this before they import torch,
    because OpenMP reads the environment only once. Does nothing if torch is loaded or the environment already
    has a policy.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _WAIT_CHOICES):
        os.environ.update(_SLEEP_SOON)


def declare(commands: Any, known: Mapping[str, Command], arguments: Sequence[str]) -> None:
    """Declare all commands by name, and the options of the called one.

    Modules of commands import their libraries, which takes seconds, so only the called one is imported. The
    command ``completion`` imports all, because it needs the options of all commands.

    Args:
        commands: from ``argparse.ArgumentParser.add_subparsers``.
        arguments: of the program; the first one that is not an option names the command.
    """
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in known.items():
        if called in (name, "completion"):
            importlib.import_module(command.module).add_parser(_CommandParsers(commands, command.help))
        else:
            commands.add_parser(name, help=command.help)


class _CommandParsers:
    """Subparsers that add the help of the called command."""

    def __init__(self, commands: Any, help_text: str) -> None:
        self._commands, self._help = commands, help_text

    def add_parser(self, name: str, **options: Any) -> Any:
        """Add the parser of a command, see ``argparse``."""
        # An abbreviation would read --limit, which does not exist, as --limits.
        return self._commands.add_parser(
            name, help=self._help, description=self._help, allow_abbrev=False, **options
        )


def run_program(program: str, run: Callable[[], int]) -> int:
    """Run a program from its first import on, and end it quietly after Ctrl-C.

    Args:
        program: its name.
        run: declares and runs the called command, see :func:`run_command`.

    Returns:
        The exit status of ``run``, or 130.
    """
    try:
        return run()
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130


def run_command(program: str, options: Any, errors: tuple[type[Exception], ...]) -> int:
    """Run the called command and print its error as one line.

    Args:
        program: its name, at the start of the line.
        options: of the command; ``options.run(options)`` runs it.
        errors: types that the user can fix; others are raised.

    Returns:
        The exit status: that of the command; 1 if the reader of the output has ended, 2 after an error, 130
        or 143 after a signal.
    """
    if options.command != "completion":
        vars(options).pop("parser", None)  # Cannot be pickled for worker processes.
    try:
        status = int(options.run(options))
        sys.stdout.flush()  # Flush here, so that a full disk is reported as a command error.
        return status
    except BrokenPipeError:
        _discard_output()
        return 1
    except errors as error:
        print(f"{program} {options.command}: {failure(error, options)}", file=sys.stderr)
        failed = write_failure(error)
        if failed is not None and failed.filename is None:
            _discard_output()
        return 2
    except Interrupted as error:
        print(f"{program} {options.command}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{program} {options.command}: interrupted", file=sys.stderr)
        return 130


def _discard_output() -> None:
    """Discard further standard output, also at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def failure(error: Exception, options: Any = None) -> str:
    """Return the line to print when a command fails.

    Args:
        options: of the command; with ``--resume`` the message offers it for files in ``options.out``.
    """
    failed = write_failure(error) or error
    if not isinstance(failed, OSError):
        return str(failed)
    folder = getattr(options, "out", None)
    resume = (
        hasattr(options, "resume")
        and folder is not None
        and failed.filename is not None
        and Path(os.fsdecode(failed.filename)).is_relative_to(folder)
    )
    return describe_file_error(failed, resume=resume)


@contextmanager
def reported_file_errors(program: str) -> Iterator[None]:
    """End a program without subcommands with one line after a file error.

    Args:
        program: its name, at the start of the line.

    Raises:
        SystemExit: with the line, and exit status 1.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and write_failure(error) is None:
            raise
        raise SystemExit(f"{program}: {failure(error)}") from error
