"""Commands out of Markdown, and the parsers that would take them."""

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
#: Between two commands of a line.
_JOINTS = {"|", "||", "&&", ";", "&"}


class Shown(NamedTuple):
    """A command as a page shows it.

    Attributes:
        page: from the root of the project.
        words: of the command.
        whole: it could be run as it stands; else it is named within a sentence.
    """

    page: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    """All that tell people what to type."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [*found, ROOT / "benchmarks/README.md", *sorted((ROOT / "perception/weights").glob("*.md"))]


def shown_commands(page: Path) -> Iterator[Shown]:
    """Those of ours in blocks and sentences of a page."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    rest = _FENCED.sub("", text)
    blocks = [
        match[2] for match in _FENCED.finditer(text) if match[1] in ("", "bash", "console", "sh", "text")
    ]
    blocks.append("\n".join(line for line in rest.splitlines() if line.startswith("    ")))
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            for words in _commands_of(line.strip().removeprefix("$ ")):
                yield Shown(name, words, whole=True)
    for match in _INLINE.finditer(rest):
        for words in _commands_of(match[1]):
            yield Shown(name, words, whole=False)


def _commands_of(line: str) -> Iterator[tuple[str, ...]]:
    if line.partition(" ")[0].partition("=")[0] not in PROGRAMS and not re.match(r"[A-Z_]+=", line):
        return
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    words.whitespace_split = True
    try:
        found = [*words, ";"]
    except ValueError:
        return  # Quotes that close on a later line: what a program printed.
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
    """The parser was found."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def _reach(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
    raise _Reached(parser)


def parser_of(program: str, words: Sequence[str]) -> argparse.ArgumentParser:
    """The program's own parser, made as for these words; the program ends there."""
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
    raise AssertionError(f"{program}: came to its end without a parser")


def complaint(program: str, words: Sequence[str]) -> str:
    """What the program's parser says against the words; nothing where it takes them."""
    parser = parser_of(program, words)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(list(words))
        except SystemExit as stopped:
            return said.getvalue() if stopped.code else ""
    return ""


def options_of(program: str, words: Sequence[str]) -> set[str]:
    """What the program, or the command of it that is named, takes."""
    parser = parser_of(program, words)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser = action.choices[words[0]]
            break
    return set(parser._option_string_actions)
