"""Robots, services and servers as processes of their own, which tests kill and start again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

from memory.errors import StoreError
from memory.persistence.postgres import server


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A service of a store in a process of its own, and its address."""
    command = [sys.executable, "-m", "memory.cli", "serve", str(folder)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--rate", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["address"]


def start_again(folder: Path, *, tries: int) -> str:
    """Start a server that was killed: its processes may still be ending."""
    for _ in range(tries):
        with contextlib.suppress(StoreError):
            return server.start(folder)
        time.sleep(0.2)
    return server.start(folder)


def labels_of(line: str) -> list[str]:
    """What a robot says that it has stored: a line for each time."""
    return line.strip().split("|")


def killed(robot: subprocess.Popen[str]) -> set[str]:
    """Kill a robot; labels of all that it had stored, of which it said so to the end."""
    robot.kill()
    said, _ = robot.communicate()
    whole = [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
    return {label for line in whole for label in labels_of(line)}
