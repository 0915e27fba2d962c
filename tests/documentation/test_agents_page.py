"""The configurations of docs/agents.md start the server, and its client works."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memory.cli import main as recall
from memory.cli.commands import COMMANDS
from memory.cli.service import mcp
from perception.cli import main as perceive


def blocks(repository: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (repository / "docs/agents.md").read_text(), re.DOTALL)


def test_configurations_start_the_server(repository: Path) -> None:
    parser = argparse.ArgumentParser()
    mcp.add_parser(parser.add_subparsers())
    found = [json.loads(block) for block in blocks(repository, "json")]
    assert [list(part) for part in found] == [["mcpServers"], ["servers"]]
    for part in found:
        ((server,),) = (list(table.values()) for table in part.values())
        assert Path(server["command"]).name == "recall"
        options = parser.parse_args(server["args"])
        assert options.words == ["/data/robot-memory"]
        assert options.scans == Path("/data/scans")
    assert "mcp" in COMMANDS


@pytest.mark.slow
def test_the_client_in_python_asks_and_looks(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run both demos first: the client uses their store and scans."""
    monkeypatch.chdir(tmp_path)
    assert perceive(["demo"]) == recall(["demo"]) == 0
    (client,) = blocks(repository, "python")
    started = f'command={sys.executable!r}, args=["-m", "memory.cli", '
    ours = re.sub(r'command="recall",\s+args=\[', started.replace("\\", "\\\\"), client)
    assert ours != client
    done = subprocess.run(
        [sys.executable, "-c", ours],
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    asked, seen = done.stdout.splitlines()
    assert asked.startswith("Cyclist was last seen on 2026-01-06")
    assert re.fullmatch(r"Found in 000005\.bin: .*image/png", seen)
