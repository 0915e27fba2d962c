"""docs/agents.md: configurations are JSON that starts the command, and every tool is in the table."""

from __future__ import annotations

import argparse
import ast
import json
import re
from pathlib import Path

from memory.cli import mcp
from memory.cli.commands import COMMANDS
from memory.serve.tool_server import READING, WRITING
from perception.tools import detection_tools


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
    (client,) = blocks(repository, "python")
    ast.parse(client)


def test_every_tool_is_in_the_table(repository: Path) -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+) \|", (repository / "docs/agents.md").read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    assert len(named) == len(set(named))
    assert set(named) == {*READING, *WRITING, *(tool.__name__ for tool in detection_tools(repository))}
