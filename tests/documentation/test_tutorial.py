"""The tutorial runs line by line in one folder and prints what it shows."""

from __future__ import annotations

import io
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from memory.cli import main as recall
from perception.cli import main as perceive

PROGRAMS = {"perceive": perceive, "recall": recall}
PORT = "8713"


class Reader:
    """Runs the blocks of the page.

    Commands of the project run in this process; others, and those that end in ``&``, are processes.
    """

    def __init__(self, repository: Path) -> None:
        self.names: dict[str, Any] = {}
        self.background: list[subprocess.Popen[str]] = []
        self.environment = {**os.environ, "PYTHONPATH": str(repository)}
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = str(found.getsockname()[1])

    def python(self, block: str) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(block, "tutorial.md", "exec"), self.names)
        return printed.getvalue()

    def bash(self, block: str) -> str:
        return "".join(self.command(line.replace(PORT, self.port)) for line in block.splitlines())

    def command(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "kill":
            self.end()
            return ""
        if words[-1] == "&":
            assert words[0] == "recall"
            started = [sys.executable, "-m", "memory.cli", *words[1:-1]]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.background.append(subprocess.Popen(started, env=self.environment, text=True, **quiet))
            return ""
        if words[0] in PROGRAMS:
            printed = io.StringIO()
            with redirect_stdout(printed):
                assert PROGRAMS[words[0]](words[1:]) == 0, line
            return printed.getvalue()
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True)
        return done.stdout + "\n"

    def end(self) -> None:
        for process in self.background:
            process.terminate()
            assert process.wait(300) in (0, -15), "the service did not end in order"
        self.background = []


@pytest.fixture
def reader(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    monkeypatch.chdir(tmp_path)
    found = Reader(repository)
    yield found
    for process in found.background:
        process.kill()
        process.wait()


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of each block, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def shown(expected: str, printed: str) -> bool:
    """Return True if the output matches; ``...`` matches anything, and any lines if alone on a line."""
    pattern = ""
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            parts = (re.escape(part) for part in re.split(r"\.\.\.", line.strip()))
            pattern += r"[ ]*" + r"[^\n]*?".join(parts) + r"[ ]*\n"
    return re.fullmatch(pattern, printed.strip() + "\n") is not None


def test_every_line_runs_and_prints_what_is_shown(reader: Reader, repository: Path) -> None:
    found = blocks((repository / "docs/tutorial.md").read_text())
    assert [language for language, _ in found[1::2]] == ["text"] * (len(found) // 2)
    assert len(found) == 32
    for (language, block), (_, expected) in zip(found[::2], found[1::2], strict=True):
        printed = reader.python(block) if language == "python" else reader.bash(block)
        assert shown(expected, printed), f"{block}\nprinted\n{printed}\nand not\n{expected}"
    assert not reader.background


def test_what_is_shown_is_compared() -> None:
    assert shown("a ... c\n", "a b c\n")
    assert shown("first\n...\nlast\n", "first\nmore\nand more\nlast")
    assert shown("first\n...\nlast\n", "first\nlast\n")
    assert not shown("a ... c\n", "a b d\n")
    assert not shown("first\n", "first\nsecond\n")
    assert not shown("first\n...\nlast\n", "first\nmore\n")
    assert not shown("a ... c\n", "a\nc\n")
