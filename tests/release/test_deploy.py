"""The files of ``deploy`` call commands that are there, with options that they take."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize(("target", "path"), [("live", "/healthz"), ("serve", "/api/health")])
def test_the_images_call_what_is_there(target: str, path: str, repository: Path) -> None:
    text = (repository / "deploy/Containerfile").read_text()
    part = text.split(f" AS {target}\n")[1].split("\nFROM ")[0]
    options = parsed(json.loads(re.findall(r"^CMD (\[.*)$", part, re.M)[0]))
    port = options.health.partition(":")[2] if target == "live" else options.port
    assert f"127.0.0.1:{port}{path}" in part
    assert re.search(rf"^EXPOSE .*\b{port}\b", part, re.M)
    extras = set(re.findall(r"\.whl\)\[([\w,-]+)\]", text)[0].split(","))
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert extras <= project["optional-dependencies"].keys()


def test_images_are_built_of_the_wheels_alone(repository: Path) -> None:
    """A clone may hold gigabytes of an environment, and data: neither goes to the builder."""
    lines = (repository / ".dockerignore").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ["*", "!build/wheels/*.whl"]
    text = (repository / "deploy/Containerfile").read_text()
    assert "source=build/wheels" in text
    assert "COPY" not in text
    assert re.search(r"^WHEELS \?= build/wheels$", (repository / "Makefile").read_text(), re.M)


@pytest.fixture
def check_image(release_module: Callable[[str], ModuleType]) -> ModuleType:
    return release_module("check_image")


def test_a_missing_builder_is_named(check_image: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_image.shutil, "which", lambda name: None if name == "buildah" else name)
    with pytest.raises(SystemExit, match=r"buildah is missing: apt install buildah mmdebstrap"):
        check_image.main(["--work", "anywhere"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_both_demos_and_both_services_run_in_the_images(check_image: ModuleType, tmp_path: Path) -> None:
    reason = check_image.why_not()
    if reason is not None:
        pytest.skip(reason)
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("zig is missing: pip install ziglang wheel")
    # The check leaves the network, so it has a process of its own.
    words = [sys.executable, check_image.__file__, "--work", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
