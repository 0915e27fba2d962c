"""The commands of docs/service.md run in order and give the shown answers."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.serve.openapi.requests import BODIES
from memory.serve.options import ServeOptions

pytest.importorskip("fastapi")
ADDRESS = "http://127.0.0.1:8713"


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/service.md").read_text()


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command with the output lines that the page shows."""
    for block in re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL):
        for part in block.removeprefix("$ ").split("\n$ "):
            lines = part.strip("\n").splitlines()
            command = lines.pop(0)
            while command.count("'") % 2:
                command += "\n" + lines.pop(0)
            yield command, lines


class Service:
    """The service of the page, on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.address = ADDRESS

    def start(self, words: list[str], environment: dict[str, str]) -> None:
        """Start a service in place of the previous one."""
        self.end()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memory.cli", *words, "--port", "0", "--json"],
            cwd=self.folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())["address"]
        self.address = "http://127.0.0.1:" + told.rstrip("/").rpartition(":")[2]

    def end(self) -> None:
        """Stop the service as Ctrl-C does."""
        if self.process is not None:
            self.process.terminate()
            self.process.communicate(timeout=300)
            assert self.process.returncode == 0
            self.process = None


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_run(page: str, tmp_path: Path) -> None:
    service = Service(tmp_path)
    said: dict[str, str] = {}
    try:
        for command, expected in commands(page):
            words = shlex.split(command)
            environment: dict[str, str] = {}
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                name, _, environment[name] = words.pop(0).partition("=")
            if words[:2] == ["recall", "serve"]:
                service.start(words[1:], environment)
                continue
            if words[0] == "recall":
                words = [sys.executable, "-m", "memory.cli", *words[1:]]
            else:
                words = [words[0], "--fail-with-body"] + [
                    word.replace(ADDRESS, service.address) for word in words[1:]
                ]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
            # 28: curl stopped after --max-time.
            assert done.returncode in ((0, 28) if "--max-time" in words else (0,)), (command, done)
            if expected:
                assert done.stdout.splitlines() == expected, command
            said[words[-1] if words[0] != "curl" else command] = done.stdout
    finally:
        service.end()
    texts = {command.split("/api/")[1].split()[0].strip('"'): text for command, text in said.items()
             if "/api/" in command}  # fmt: skip
    assert json.loads(texts["ask"])["answer"]["memory"]["id"] == 1
    assert [hit["memory"]["label"] for hit in json.loads(texts["query"])["hits"]] == ["Mug", "Door"]
    assert [row["operation"] for row in json.loads(texts["log?after=2"])["operations"]] == ["remove", "undo"]
    assert json.loads(texts["stats?check=true"])["check"]["ok"]
    assert [json.loads(line)["label"] for line in texts["export"].splitlines()] == ["Mug", "Door"]
    assert texts["events?after=0"].count("event: operation") == 4
    assert json.loads(texts["health"])["status"] == "ok"


def test_every_address_and_limit_is_told(page: str) -> None:
    for path in BODIES:
        assert f"`POST {path}`" in page
    usual = ServeOptions()
    assert f"{usual.rate:g}, {usual.burst} at once" in page
    assert f"{usual.header_timeout_s:g}; {usual.body_timeout_s:g}" in page
    assert f"{usual.max_connections:,}; {usual.max_subscribers}" in page
    assert f"{usual.max_batch:,}" in page
    assert f"{usual.max_body_bytes >> 20} MiB" in page
    named = set(re.findall(r"`(?:ServeOptions\.)?([a-z]+_[a-z_]+)`", page))
    assert {name for name in named if name.startswith("max_")} <= {
        field.name for field in dataclasses.fields(usual)
    }
