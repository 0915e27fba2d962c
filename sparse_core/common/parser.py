"""Parser of ``perceive`` and ``recall``: free order of arguments, and errors that suggest names."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

#: Longer usage texts hide the error below them.
_LONGEST_USAGE = 3


class CommandParser(argparse.ArgumentParser):
    """Parser of a program or of one of its commands.

    Positional arguments may stand before, between and after options, and ``--axes -x,-y,z`` is read as
    ``--axes=-x,-y,z``. Errors suggest near names. A program without a command prints its help as the error.
    """

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, see ``argparse``; exit with an error about arguments that no option takes."""
        args = None if args is None else self._joined(args)
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            # argparse cannot mix options with a command, whose own parser mixes them.
            parse = self.parse_known_intermixed_args if self._subparsers is None else super().parse_known_args
            options, unknown = parse(args, namespace)
        finally:
            self._within = False
        if unknown:
            names = [word.partition("=")[0] for word in unknown if word.startswith("--")]
            guess = next(filter(None, (_guess(name, self._option_string_actions) for name in names)), "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{guess}")
        return options, unknown

    def _joined(self, words: Sequence[str]) -> list[str]:
        """Join an option and a value that argparse would take for another option."""
        joined: list[str] = []
        for word in words:
            action = self._option_string_actions.get(joined[-1]) if joined else None
            takes_one = action is not None and action.nargs is None
            if takes_one and re.match(r"-\.?[\dxyz]", word) and word not in self._option_string_actions:
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, the error and a pointer to the help."""
        if message == "the following arguments are required: COMMAND":
            self.exit(2, self.format_help())
        wrong = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        if wrong:
            guess = _guess(wrong[1], re.findall(r"[\w-]+", wrong[2]))
            message = f"no command {wrong[1]!r}{guess}"
        usage = self.format_usage()
        if usage.count("\n") > _LONGEST_USAGE:
            usage = f"usage: {self.prog} [options] ...\n"
        self.exit(2, f"{usage}{self.prog}: error: {message}\nAll options: {self.prog} --help\n")


def _guess(word: str, known: Iterable[str]) -> str:
    names = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), names, 1)
    return f". Did you mean {names[near[0]]}?" if near else ""
