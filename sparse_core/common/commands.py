"""Programs of many commands: a command's module is imported when that command is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sparse_core.common.files import describe_file_error, write_failure
from sparse_core.common.interruption import Interrupted

#: Variables by which users choose how threads wait: of OpenMP, of GNU's library, of LLVM's and Intel's.
_WAIT_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
#: GNU's library spins 1,000 rounds, about 20 microseconds, before a thread sleeps. Others sleep at once.
_SLEEP_SOON = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}


class Command(NamedTuple):
    """One command of a program.

    Attributes:
        module: whose ``add_parser(commands)`` declares it with ``commands.add_parser(name)``.
        help: a sentence or more.
    """

    module: str
    help: str


def sleep_while_waiting() -> None:
    """Let the OpenMP threads of torch sleep soon while they wait for each other.

    By default they spin for some milliseconds, and take a core from the thread they wait for. Only programs
    call this, before torch is loaded: OpenMP reads the environment once, when torch loads it. Importing a
    package changes nothing. Does nothing if torch is loaded, or if the environment has a choice.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _WAIT_CHOICES):
        os.environ.update(_SLEEP_SOON)


def declare(commands: Any, known: Mapping[str, Command], arguments: Sequence[str]) -> None:
    """Declare all commands by name, and the arguments of the called one.

    Modules of commands import their libraries, which takes seconds, so ``--help`` imports none of them. The
    command ``completion`` needs the arguments of all commands.

    Args:
        commands: of ``argparse.ArgumentParser.add_subparsers``.
        known: the commands by name.
        arguments: of the program; the first that is no option names the command.
    """
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in known.items():
        if called in (name, "completion"):
            importlib.import_module(command.module).add_parser(_Described(commands, command.help))
        else:
            commands.add_parser(name, help=command.help)


class _Described:
    """Subparsers that give the called command its help, which its module need not import."""

    def __init__(self, commands: Any, help_text: str) -> None:
        self._commands, self._help = commands, help_text

    def add_parser(self, name: str, **options: Any) -> Any:
        """Add the parser of a command, see ``argparse``."""
        return self._commands.add_parser(name, help=self._help, description=self._help, **options)


def run_command(program: str, options: Any, errors: tuple[type[Exception], ...]) -> int:
    """Run the command that was called and print its error as one line.

    Args:
        program: its name, which begins the line.
        options: of the command; ``options.run`` is called with them.
        errors: that the user can act on; others are raised.

    Returns:
        The exit status: of the command; 1 if nobody reads its output, 2 after an error, 130 or 143 after a
        signal.
    """
    try:
        status = int(options.run(options))
        sys.stdout.flush()  # Here, where a full disk behind it gets its line.
        return status
    except BrokenPipeError:
        # The reader of the output has ended.
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
    """Write nothing more to the standard output, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def failure(error: Exception, options: Any = None) -> str:
    """Return the line that a program prints when a command fails.

    Args:
        error: of the command.
        options: of the command. One that has ``--resume`` resumes what it writes to ``options.out``.
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
    """End a program with one line where a file fails, for programs without further commands.

    Args:
        program: its name, which begins the line.

    Raises:
        SystemExit: with the line, and exit status 1.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and write_failure(error) is None:
            raise
        raise SystemExit(f"{program}: {failure(error)}") from error
