"""Parser of the commands: short errors that say how to fix them, and values that start with a minus."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

#: Longer usage texts hide the error below them.
_LONGEST_USAGE = 3
#: argparse's own words.
_UNKNOWN = "unrecognized arguments: "


class CommandParser(argparse.ArgumentParser):
    """Parser that takes ``--axes -x,-y,z`` as ``--axes=-x,-y,z``, and whose errors suggest names.

    Attributes:
        command: parser of the called command, which reports arguments that no option takes.
    """

    command: CommandParser | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, see ``argparse``."""
        return super().parse_known_args(None if args is None else self._joined(args), namespace)

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

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Exit with an error about arguments that no option takes."""
        guesses = [self._guess(word.partition("=")[0]) for word in words]
        guess = next((guess for guess in guesses if guess), "")
        self.error(f"{_UNKNOWN}{' '.join(words)}{guess}")

    def _guess(self, word: str) -> str:
        if not word.startswith("--"):
            return ""
        near = difflib.get_close_matches(word, self._option_string_actions, 1)
        return f". Did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, the error and a pointer to the help."""
        if self.command is not None and message.startswith(_UNKNOWN):
            self.command.refuse(message.removeprefix(_UNKNOWN).split())
        wrong = re.match(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        if wrong:
            near = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]), 1)
            guess = f" Did you mean {near[0]}?" if near else ""
            message = f"no command {wrong[1]!r}.{guess}"
        usage = self.format_usage()
        if usage.count("\n") > _LONGEST_USAGE:
            usage = f"usage: {self.prog} [options] ...\n"
        self.exit(2, f"{usage}{self.prog}: error: {message}\nAll options: {self.prog} --help\n")


def number_type(accepts: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """Return an argparse type for numbers; ``expected`` describes the accepted ones, for the error."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not accepts(value):
            raise argparse.ArgumentTypeError(f"must be {expected}, got {text!r}")
        return value

    return parse
