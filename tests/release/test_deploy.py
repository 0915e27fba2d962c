"""The files of ``deploy`` call commands that are there, with options that they take."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
import tomllib

from memory.cli.commands import COMMANDS as RECALL
from perception.cli.commands import COMMANDS as PERCEIVE
from sparse_core.common.commands import declare


def unit(path: Path) -> ConfigParser:
    found = ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[method-assign,assignment]
    found.read(path)
    return found


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=words[0], exit_on_error=False)
    commands = parser.add_subparsers(dest="command", required=True)
    declare(commands, PERCEIVE if words[0] == "perceive" else RECALL, words[1:])
    return parser.parse_args(words[1:])


@pytest.mark.parametrize("name", ["perceive-live", "recall-serve"])
def test_services_call_what_is_there_and_are_watched(name: str, repository: Path) -> None:
    service = unit(repository / f"deploy/{name}.service")["Service"]
    words = shlex.split(service["ExecStart"].replace("${SOURCE}", "udp://:2368"))
    options = parsed([Path(words[0]).name, *words[1:]])
    assert options.command == name.partition("-")[2]
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    assert int(service["WatchdogSec"]) >= 10


def test_services_are_as_systemd_reads_them(repository: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for path in sorted((repository / "deploy").glob("*.service")):
        text = re.sub(r"/opt/sparsight/bin/\w+", "/bin/true", path.read_text())
        (tmp_path / path.name).write_text(text)
    files = [str(path) for path in sorted(tmp_path.glob("*.service"))]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, timeout=300)
    about = [line for line in done.stderr.splitlines() if "perceive-live" in line or "recall-serve" in line]
    assert about == []


def test_the_container_calls_what_is_there(repository: Path) -> None:
    text = (repository / "deploy/Containerfile").read_text()
    words = [json.loads(re.findall(rf"^{word} (.*)$", text, re.M)[0]) for word in ("ENTRYPOINT", "CMD")]
    options = parsed(words[0] + words[1])
    port = options.health.partition(":")[2]
    assert f"127.0.0.1:{port}/healthz" in text
    assert re.search(rf"^EXPOSE .*\b{port}\b", text, re.M)
    extras = set(re.findall(r"source\[([\w,-]+)\]", text)[0].split(","))
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert extras <= project["optional-dependencies"].keys()


def test_the_container_is_built_of_what_a_wheel_needs_and_no_more(repository: Path) -> None:
    """A clone may hold gigabytes of an environment, and data: neither goes to the builder."""
    lines = (repository / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    files = {project["project"]["readme"], *project["project"]["license-files"]}
    assert sent == {"pyproject.toml", *packages, *(file for file in files if "/" not in file)}
    assert {file.partition("/")[0] for file in files} <= sent
    assert all((repository / name).exists() for name in sent | files)
    assert "COPY . source" in (repository / "deploy/Containerfile").read_text()
