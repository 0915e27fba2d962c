"""Find commands in Markdown and the parsers of their programs."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn
from unittest import mock

from memory.cli import main as recall
from perception.cli import main as perceive
from sparse_core.merging.cli import main as merge

ROOT = Path(__file__).parents[2]
MAINS: dict[str, Callable[[Sequence[str]], int]] = {
    "perceive": perceive,
    "recall": recall,
    "sparsight-merge": merge,
}
PROGRAMS = (*MAINS, "python", "torchrun", "make")
_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", flags=re.MULTILINE | re.DOTALL)
_INLINE = re.compile(rf"`((?:{'|'.join(PROGRAMS)}) [^`\n]+)`")
#: Tokens between two commands on one line.
_JOINTS = {"|", "||", "&&", ";", "&"}


class ShownCommand(NamedTuple):
    """A command on a page.

    Attributes:
        page: path from the root of the project.
        words: the command and its arguments.
        whole: True in a code block; False inside a sentence.
    """

    page: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    """Return all pages that show commands."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [*found, ROOT / "benchmarks/README.md", *sorted((ROOT / "perception/weights").glob("*.md"))]


def shown_commands(page: Path) -> Iterator[ShownCommand]:
    """Yield the commands of this project in blocks and sentences of a page."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    rest = _FENCED.sub("", text)
    blocks = [
        match[2] for match in _FENCED.finditer(text) if match[1] in ("", "bash", "console", "sh", "text")
    ]
    blocks.append("\n".join(line for line in rest.splitlines() if line.startswith("    ")))
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            for words in _commands_of(line.strip().removeprefix("$ ")):
                yield ShownCommand(name, words, whole=True)
    for match in _INLINE.finditer(rest):
        for words in _commands_of(match[1]):
            yield ShownCommand(name, words, whole=False)


def _commands_of(line: str) -> Iterator[tuple[str, ...]]:
    if line.partition(" ")[0].partition("=")[0] not in PROGRAMS and not re.match(r"[A-Z_]+=", line):
        return
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    words.whitespace_split = True
    try:
        found = [*words, ";"]
    except ValueError:
        return  # Quotes that close on a later line: output of a program.
    command: list[str] = []
    for word in found:
        if word not in _JOINTS:
            command.append(word)
            continue
        while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
            del command[0]
        if command and command[0] in PROGRAMS:
            yield tuple(command)
        command = []


class _Reached(Exception):
    """Raised when a program calls its parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def _reach(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
    raise _Reached(parser)


def parser_of(program: str, words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser that the program builds for these words; stop the program there."""
    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", _reach),
        # Pages show commands whose extras are not installed here.
        mock.patch("perception.cli.check_extras"),
    ):
        try:
            if program in MAINS:
                MAINS[program](words)
            else:
                with mock.patch.object(sys, "argv", [program, *words]):
                    runpy.run_path(str(ROOT / program), run_name="__main__")
        except _Reached as reached:
            return reached.parser
    raise AssertionError(f"{program} ended without calling a parser")


def complaint(program: str, words: Sequence[str]) -> str:
    """Return the error of the program's parser; empty if it accepts the words."""
    parser = parser_of(program, words)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(list(words))
        except SystemExit as stopped:
            return printed.getvalue() if stopped.code else ""
    return ""


def options_of(program: str, words: Sequence[str]) -> set[str]:
    """Return the options of the program or of its named command."""
    parser = parser_of(program, words)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser = action.choices[words[0]]
            break
    return set(parser._option_string_actions)
